#include "internal.h"
int pcilat_irq_init(struct pcilat_device *pl, unsigned int max_vectors) {return 0;}
void pcilat_irq_exit(struct pcilat_device *pl){}
int pcilat_irq_prepare(struct pcilat_job *job){return -EOPNOTSUPP;}
void pcilat_irq_finish(struct pcilat_job *job){}
void pcilat_irq_turn(struct pcilat_worker *w){}
