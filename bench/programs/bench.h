/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What all benchmark programs share. Each source makes two things: a BPF program of type `raw`, and a native function
 * named native_NAME_PLACEMENT, so that both run the same C over the same memory.
 *
 * Rules for a program, which let every engine run it and let results be compared:
 *
 *   - It touches only `mem`, its stack, and what the table in programs.json says (helpers, maps).
 *   - Its result depends on the memory it is given, and running it again over the memory it left gives the same
 *     result: what it writes is never what it reads first.
 *   - Indices are masked or constant, loops end at constants, and accumulators start from memory, so that a verifier
 *     that walks every iteration sees the same state at the end of each branch.
 *   - Apart from `crc32` and the maps there are no tables: constants stand in the code, for engines without .rodata.
 */
#ifndef SKEP_BENCH_H
#define SKEP_BENCH_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define NOINLINE static __attribute__((noinline))
#define INLINE static inline __attribute__((always_inline))

#ifdef __bpf__
#define PROGRAM(name) __attribute__((section("raw"), used)) u64 name(u8 *mem, u64 len)
char LICENSE[] __attribute__((section("license"), used)) = "Dual MIT/GPL";
#else
/* The native function is made several times at different places: native_NAME_0, native_NAME_1, ... */
#ifndef PLACEMENT
#define PLACEMENT 0
#endif
#define NATIVE(name, placement) NATIVE_(name, placement)
#define NATIVE_(name, placement) native_##name##_##placement
#define PROGRAM(name) \
	u64 NATIVE(name, PLACEMENT)(u8 *mem, u64 len); \
	u64 NATIVE(name, PLACEMENT)(u8 *mem, u64 len)
#endif

/* The programs are told their length and know it already: a buffer that is too short makes them return 0. */
#define NEED(bytes) \
	if (len < (bytes)) \
	return 0

/* Hides from the compiler what `value` is, at the cost of no instruction. */
#define OPAQUE(value) __asm__ volatile("" : "+r"(value))

INLINE u64 rotate64(u64 value, int by)
{
	return value << by | value >> (64 - by);
}

INLINE u32 rotate32(u32 value, int by)
{
	return value << by | value >> (32 - by);
}

#endif
