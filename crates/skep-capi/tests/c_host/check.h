/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <skep.h>

#define CHECK(condition)                                                                                              \
	do {                                                                                                          \
		if (!(condition)) {                                                                                   \
			fprintf(stderr, "%s line %d: not so: %s (%s)\n", __FILE__, __LINE__, #condition,              \
				skep_error_message());                                                                \
			exit(1);                                                                                      \
		}                                                                                                     \
	} while (0)

#define OK(call) CHECK((call) == SKEP_OK)

/* Whether the last message has these words. */
static inline int says(const char *words)
{
	return strstr(skep_error_message(), words) != NULL;
}

#endif
