/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What the parts of the host `parity` share. */
#ifndef PARITY_H
#define PARITY_H

#include "check.h"

enum { FRAME = 64 };

extern uint8_t frame[FRAME];
/* How many contexts were freed by count_free. */
extern int freed;

void count_free(void *context);
skep_packet *new_packet(void);
uint32_t run(const skep_module *module, const char *name, void *state);

/* In limits.c. */
void limits(const char *path);
void upgrade(const char *old_path, const char *new_path);
void refusal(const char *path);
void worlds(const char *path);
void steps(const char *path);
void raw(const char *path);

#endif
