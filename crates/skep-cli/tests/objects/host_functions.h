/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#pragma once

static long (*const no_such_helper)(void) = (void *)9999;
static unsigned char (*const tenant)(unsigned int address, const void *table, unsigned long size) = (void *)10000;
