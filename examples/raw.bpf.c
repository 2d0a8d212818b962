/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A program over a host's own memory, for which no packet is needed: the first argument is a read-write buffer whose
 * size the verifier knows, the second its length in bytes. It returns the sum of all bytes and replaces each
 * byte by the sum up to and including it.
 */
#include <linux/types.h>

#include <bpf/bpf_helpers.h>

SEC("raw")
__u64 sum_bytes(__u8 *memory, __u64 length)
{
	__u64 sum = 0;

	for (__u64 i = 0; i < length; i++) {
		sum += memory[i];
		memory[i] = sum;
	}
	return sum;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
