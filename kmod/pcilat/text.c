#include "internal.h"
int pcilat_text_init(struct pcilat_device *pl){return 0;}
void pcilat_text_exit(struct pcilat_device *pl){}
void pcilat_text_free(struct pcilat_device *pl){}
