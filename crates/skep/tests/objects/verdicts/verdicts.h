/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What the programs here share. None of them is meant to be run: each is there for what Linux's verifier and skep's
 * say of it (verdicts.tsv), and those whose name begins with `bad_` are wrong on purpose, in the way that the comment
 * above says. A line `clang:` at the head of a file has what it is compiled with besides the common options.
 */
#ifndef SKEP_VERDICTS_H
#define SKEP_VERDICTS_H

#include <stddef.h>

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAP(kind, entries, key_type, value_type)   \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_##kind); \
		__uint(max_entries, entries);      \
		__type(key, key_type);             \
		__type(value, value_type);         \
	}

/* The ends of a packet, of whichever context. */
#define BEGIN(ctx) ((void *)(long)(ctx)->data)
#define END(ctx) ((void *)(long)(ctx)->data_end)

char _license[] SEC("license") = "GPL";

#endif
