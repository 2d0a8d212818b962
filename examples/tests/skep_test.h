/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Tests of BPF programs in C, for `skep test`. A test is up to three programs, in sections that name its type, its name
 * and the stage. They run one after the other on one packet:
 *
 *   PKTGEN("xdp", "name")   writes the packet; it starts with a buffer of zeroes
 *   SETUP("xdp", "name")    fills maps and runs the program under test by a tail call
 *   CHECK("xdp", "name")    sees what that returned in the first four bytes, and the packet behind them
 *
 * A check returns TEST_PASS, TEST_FAIL or TEST_SKIP. What it prints with bpf_printk is shown if it fails. The sections
 * and results are those of Cilium's tests, so objects with their macros run as well.
 */
#ifndef SKEP_TEST_H
#define SKEP_TEST_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define TEST_ERROR 0
#define TEST_PASS 1
#define TEST_FAIL 2
#define TEST_SKIP 3

#define PKTGEN(type, name) SEC(type "/test/" name "/pktgen")
#define SETUP(type, name) SEC(type "/test/" name "/setup")
#define CHECK(type, name) SEC(type "/test/" name "/check")

/* Ends a check as failed, with a line that says why. */
#define test_fatal(format, ...)                          \
	do {                                             \
		bpf_printk(format, ##__VA_ARGS__);       \
		return TEST_FAIL;                        \
	} while (0)

/* Ends a check as failed unless the condition holds. */
#define test_assert(condition)                                                     \
	do {                                                                       \
		if (!(condition))                                                  \
			test_fatal("line %d: " #condition " does not hold", __LINE__); \
	} while (0)

/* What a check sees: the result of the setup, and the packet behind it. Null if there are fewer than `bytes`. */
static __always_inline void *test_packet(const struct xdp_md *ctx, __u32 bytes, __u32 *status)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;

	if (data + sizeof(*status) + bytes > end)
		return 0;
	*status = *(__u32 *)data;
	return data + sizeof(*status);
}

#endif
