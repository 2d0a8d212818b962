/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What the objects for tests need of libbpf's conventions, without any header of the system, so that they hold nothing
 * of the machine they are compiled on.
 */
#define SEC(name) __attribute__((section(name), used))
#define __uint(name, number) int(*name)[number]
#define __type(name, type) typeof(type) *name
#define __array(name, type) typeof(type) *name[]
#define __hidden __attribute__((visibility("hidden")))
#define __noinline __attribute__((noinline))
#define __weak __attribute__((weak))
#define __ksym __attribute__((section(".ksyms")))
#define __kconfig __attribute__((section(".kconfig")))

typedef unsigned int u32;
typedef unsigned long long u64;

enum { HASH = 1, ARRAY = 2, PROG_ARRAY = 3, ARRAY_OF_MAPS = 12, HASH_OF_MAPS = 13, RINGBUF = 27 };

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_trace_printk)(const char *format, u32 size, ...) = (void *)6;
static long (*const bpf_tail_call)(void *context, void *map, u32 index) = (void *)12;
static long (*const bpf_loop)(u32 count, void *callback, void *data, u64 flags) = (void *)181;
