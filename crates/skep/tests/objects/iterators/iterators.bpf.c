// SPDX-License-Identifier: MIT OR Apache-2.0
// Iterators over numbers: nested, left early, in functions and callbacks, and with invalid bounds.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));

extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;

// Runs the body for each number i from one to below another; `break` leaves the loop.
#define EACH(i, from, to, body)                                                                    \
	do {                                                                                       \
		struct bpf_iter_num it;                                                            \
		int *number;                                                                       \
                                                                                                   \
		bpf_iter_num_new(&it, from, to);                                                   \
		while ((number = bpf_iter_num_next(&it))) {                                        \
			int i = *number;                                                           \
                                                                                                   \
			body                                                                       \
		}                                                                                  \
		bpf_iter_num_destroy(&it);                                                         \
	} while (0)

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// Parameters of the programs.
int first, end, stop;
// Results of the programs.
__s64 sum;
__u64 rounds;
int error;

SEC("xdp")
int sums(struct xdp_md *ctx)
{
	struct bpf_iter_num it;
	int *number;

	(void)ctx;
	error = bpf_iter_num_new(&it, first, end);
	while ((number = bpf_iter_num_next(&it))) {
		sum += *number;
		rounds++;
	}
	// After the end there are no more numbers.
	if (bpf_iter_num_next(&it))
		error = 1;
	bpf_iter_num_destroy(&it);
	return XDP_PASS;
}

SEC("xdp")
int stops(struct xdp_md *ctx)
{
	(void)ctx;
	EACH(i, first, end, {
		rounds++;
		if (i == stop)
			break;
		sum += i;
	});
	return XDP_PASS;
}

SEC("xdp")
int nested(struct xdp_md *ctx)
{
	(void)ctx;
	EACH(i, first, end, {
		EACH(j, 0, i, {
			if (j == stop)
				break;
			sum += i * 100 + j;
			rounds++;
		});
	});
	return XDP_PASS;
}

// Each call has its own iterator; the caller continues with its own.
static __noinline __u64 up_to(int last)
{
	__u64 total = 0;

	EACH(i, 0, last, { total += i; });
	return total;
}

SEC("xdp")
int in_functions(struct xdp_md *ctx)
{
	(void)ctx;
	EACH(i, first, end, {
		sum += up_to(i);
		rounds++;
	});
	return XDP_PASS;
}

// Continues the caller's iterator.
static __noinline int take(struct bpf_iter_num *it)
{
	int *number = bpf_iter_num_next(it);

	return number ? *number : -1;
}

SEC("xdp")
int by_a_function(struct xdp_md *ctx)
{
	struct bpf_iter_num it;

	(void)ctx;
	bpf_iter_num_new(&it, first, end);
	sum += take(&it);
	sum += take(&it) * 1000;
	bpf_iter_num_destroy(&it);
	return XDP_PASS;
}

static int round_of(__u64 index, void *ctx)
{
	(void)ctx;
	EACH(i, 0, (int)index, {
		if (i == stop)
			break;
		sum += i;
		rounds++;
	});
	return 0;
}

SEC("xdp")
int in_callbacks(struct xdp_md *ctx)
{
	(void)ctx;
	EACH(i, 0, 2, { bpf_loop((end & 15) + i, round_of, 0, 0); });
	return XDP_PASS;
}
