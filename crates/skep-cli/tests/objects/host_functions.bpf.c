/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What skep --host reads: the declarations as global variables. */
#define static
#include "host_functions.h"
