/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The flow dissector of dissector.bpf.c without tail calls: one program, in which a loop calls the parsers.
 */
#define TAIL_CALLS 0
#include "dissector.bpf.c"
