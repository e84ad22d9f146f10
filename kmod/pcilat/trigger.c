#include "internal.h"
#include "trigger.h"
const struct pcilat_trigger *pcilat_trigger_find(u16 vendor, u16 device) { return NULL; }
