// SPDX-License-Identifier: MIT OR Apache-2.0
// CPU masks: one function of them in each program, over masks that a map keeps; and masks in other places.
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define SHELVES 4

// As a kernel's with that many CPUs has them. A runtime's masks are its own.
struct cpumask {
	unsigned long bits[128];
};

struct bpf_cpumask {
	struct cpumask cpumask;
	int usage;
};

extern struct bpf_cpumask *bpf_cpumask_create(void) __ksym;
extern struct bpf_cpumask *bpf_cpumask_acquire(struct bpf_cpumask *cpumask) __ksym;
extern void bpf_cpumask_release(struct bpf_cpumask *cpumask) __ksym;
extern __u32 bpf_cpumask_first(const struct cpumask *cpumask) __ksym;
extern __u32 bpf_cpumask_first_zero(const struct cpumask *cpumask) __ksym;
extern __u32 bpf_cpumask_first_and(const struct cpumask *src1, const struct cpumask *src2) __ksym;
extern void bpf_cpumask_set_cpu(__u32 cpu, struct bpf_cpumask *cpumask) __ksym;
extern void bpf_cpumask_clear_cpu(__u32 cpu, struct bpf_cpumask *cpumask) __ksym;
extern bool bpf_cpumask_test_cpu(__u32 cpu, const struct cpumask *cpumask) __ksym;
extern bool bpf_cpumask_test_and_set_cpu(__u32 cpu, struct bpf_cpumask *cpumask) __ksym;
extern bool bpf_cpumask_test_and_clear_cpu(__u32 cpu, struct bpf_cpumask *cpumask) __ksym;
extern void bpf_cpumask_setall(struct bpf_cpumask *cpumask) __ksym;
extern void bpf_cpumask_clear(struct bpf_cpumask *cpumask) __ksym;
extern bool bpf_cpumask_and(struct bpf_cpumask *dst, const struct cpumask *src1,
			    const struct cpumask *src2) __ksym;
extern void bpf_cpumask_or(struct bpf_cpumask *dst, const struct cpumask *src1,
			   const struct cpumask *src2) __ksym;
extern void bpf_cpumask_xor(struct bpf_cpumask *dst, const struct cpumask *src1,
			    const struct cpumask *src2) __ksym;
extern bool bpf_cpumask_equal(const struct cpumask *src1, const struct cpumask *src2) __ksym;
extern bool bpf_cpumask_intersects(const struct cpumask *src1, const struct cpumask *src2) __ksym;
extern bool bpf_cpumask_subset(const struct cpumask *src1, const struct cpumask *src2) __ksym;
extern bool bpf_cpumask_empty(const struct cpumask *cpumask) __ksym;
extern bool bpf_cpumask_full(const struct cpumask *cpumask) __ksym;
extern void bpf_cpumask_copy(struct bpf_cpumask *dst, const struct cpumask *src) __ksym;
extern __u32 bpf_cpumask_any_distribute(const struct cpumask *cpumask) __ksym;
extern __u32 bpf_cpumask_any_and_distribute(const struct cpumask *src1, const struct cpumask *src2) __ksym;
extern __u32 bpf_cpumask_weight(const struct cpumask *cpumask) __ksym;
extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;
extern void *bpf_obj_new_impl(__u64 type, void *meta) __ksym;
extern void bpf_obj_drop_impl(void *object, void *meta) __ksym;

// A function of the host's own.
static long (*interrupt)(void) = (void *)1000;

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct shelf {
	struct bpf_cpumask __kptr *mask;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SHELVES);
	__type(key, __u32);
	__type(value, struct shelf);
} shelves SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, struct shelf);
} drawers SEC(".maps");

// Beside other variables, and more than one of them.
#define beside SEC(".bss.masks") __attribute__((aligned(8)))
beside static __u64 before;
beside static struct bpf_cpumask __kptr *pair[2];
beside static __u64 behind;

__u32 to, a, b, cpu, found;

static __always_inline const struct cpumask *cast(struct bpf_cpumask *mask)
{
	return (const struct cpumask *)mask;
}

static __always_inline struct bpf_cpumask *on(__u32 at)
{
	struct shelf *shelf = bpf_map_lookup_elem(&shelves, &at);

	return shelf ? shelf->mask : NULL;
}

// Puts a mask there, and what was there away.
static __always_inline int put(struct shelf *shelf, struct bpf_cpumask *mask)
{
	mask = bpf_kptr_xchg(&shelf->mask, mask);
	if (!mask)
		return 1;
	bpf_cpumask_release(mask);
	return 2;
}

#define OVER_ONE(name)                                              \
	SEC("raw/" #name) int name(void)                            \
	{                                                           \
		struct bpf_cpumask *one = on(a);                    \
		return one ? bpf_cpumask_##name(cast(one)) : -1;    \
	}
#define OVER_TWO(name)                                                             \
	SEC("raw/" #name) int name(void)                                           \
	{                                                                          \
		struct bpf_cpumask *one = on(a), *two = on(b);                     \
		return one && two ? bpf_cpumask_##name(cast(one), cast(two)) : -1; \
	}
#define OF_CPU(name)                                                  \
	SEC("raw/" #name) int name(void)                              \
	{                                                             \
		struct bpf_cpumask *one = on(a);                      \
		return one ? bpf_cpumask_##name(cpu, (void *)one) : -1; \
	}
#define CHANGES(name, ...)                                                  \
	SEC("raw/" #name) int name(void)                                    \
	{                                                                   \
		struct bpf_cpumask *dst = on(to), *one = on(a), *two = on(b); \
		if (!dst || !one || !two)                                   \
			return -1;                                          \
		bpf_cpumask_##name(__VA_ARGS__);                            \
		return 0;                                                   \
	}

OVER_ONE(first)
OVER_ONE(first_zero)
OVER_ONE(empty)
OVER_ONE(full)
OVER_ONE(weight)
OVER_ONE(any_distribute)
OVER_TWO(first_and)
OVER_TWO(equal)
OVER_TWO(intersects)
OVER_TWO(subset)
OVER_TWO(any_and_distribute)
OF_CPU(test_cpu)
OF_CPU(test_and_set_cpu)
OF_CPU(test_and_clear_cpu)
CHANGES(set_cpu, cpu, dst)
CHANGES(clear_cpu, cpu, dst)
CHANGES(setall, dst)
CHANGES(clear, dst)
CHANGES(or, dst, cast(one), cast(two))
CHANGES(xor, dst, cast(one), cast(two))
CHANGES(copy, dst, cast(one))

SEC("raw/and") int and(void)
{
	struct bpf_cpumask *dst = on(to), *one = on(a), *two = on(b);

	return dst && one && two ? bpf_cpumask_and(dst, cast(one), cast(two)) : -1;
}

SEC("raw/make") int make(void)
{
	struct shelf *shelf = bpf_map_lookup_elem(&shelves, &to);
	struct bpf_cpumask *mask;

	if (!shelf)
		return 0;
	mask = bpf_cpumask_create();
	if (!mask)
		return 0;
	bpf_cpumask_set_cpu(cpu, mask);
	return put(shelf, mask);
}

SEC("raw/take") int take(void)
{
	struct shelf *shelf = bpf_map_lookup_elem(&shelves, &to);

	return shelf ? put(shelf, NULL) : 0;
}

// One mask on two shelves.
SEC("raw/share") int share(void)
{
	struct shelf *from = bpf_map_lookup_elem(&shelves, &a), *shelf = bpf_map_lookup_elem(&shelves, &to);
	struct bpf_cpumask *mask, *other;

	if (!from || !shelf)
		return 0;
	mask = bpf_kptr_xchg(&from->mask, NULL);
	if (!mask)
		return 0;
	other = bpf_cpumask_acquire(mask);
	put(from, mask);
	return put(shelf, other);
}

SEC("raw/file") int file(void)
{
	struct shelf nothing = {}, *drawer;
	struct bpf_cpumask *mask;

	bpf_map_update_elem(&drawers, &to, &nothing, BPF_ANY);
	drawer = bpf_map_lookup_elem(&drawers, &to);
	if (!drawer)
		return 0;
	mask = bpf_cpumask_create();
	if (!mask)
		return 0;
	return put(drawer, mask);
}

SEC("raw/beside_globals") int beside_globals(void)
{
	struct bpf_cpumask *mask = bpf_cpumask_create();

	if (!mask)
		return 0;
	before += 1;
	behind += 2;
	mask = bpf_kptr_xchg(before & 1 ? &pair[0] : &pair[1], mask);
	if (mask)
		bpf_cpumask_release(mask);
	return behind == 2 * before ? before : 0;
}

struct box {
	__u64 number;
	struct bpf_cpumask __kptr *mask;
};

struct rack {
	struct box __kptr *box;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rack);
} racks SEC(".maps");

SEC("raw/rack") int rack(void)
{
	struct box *box = bpf_obj_new_impl(bpf_core_type_id_local(struct box), NULL);
	struct bpf_cpumask *mask;
	struct rack *rack;
	__u32 zero = 0;

	if (!box)
		return 0;
	mask = bpf_cpumask_create();
	if (mask)
		mask = bpf_kptr_xchg(&box->mask, mask);
	if (mask)
		bpf_cpumask_release(mask);
	rack = bpf_map_lookup_elem(&racks, &zero);
	if (rack)
		box = bpf_kptr_xchg(&rack->box, box);
	if (box)
		bpf_obj_drop_impl(box, NULL);
	return 1;
}

// An object of the program's own keeps a mask, and takes it along.
SEC("raw/in_a_box") int in_a_box(void)
{
	struct box *box = bpf_obj_new_impl(bpf_core_type_id_local(struct box), NULL);
	struct bpf_cpumask *mask;

	if (!box)
		return 0;
	mask = bpf_cpumask_create();
	if (mask) {
		mask = bpf_kptr_xchg(&box->mask, mask);
		if (mask)
			bpf_cpumask_release(mask);
	}
	bpf_obj_drop_impl(box, NULL);
	return 1;
}

// What a mask holds before and after others had every chance to reuse its memory.
SEC("raw/read_through") int read_through(void)
{
	struct bpf_cpumask *mask = on(a);
	int before;

	if (!mask)
		return -1;
	before = bpf_cpumask_first(cast(mask));
	interrupt();
	found = bpf_cpumask_first(cast(mask));
	return before;
}

// The same, in a section of a program that may sleep.
SEC("syscall") int read_in_section(void *ctx __attribute__((unused)))
{
	struct shelf *shelf = bpf_map_lookup_elem(&shelves, &a);
	struct bpf_cpumask *mask;
	int before = -1;

	if (!shelf)
		return -1;
	bpf_rcu_read_lock();
	mask = shelf->mask;
	if (mask) {
		before = bpf_cpumask_first(cast(mask));
		interrupt();
		found = bpf_cpumask_first(cast(mask));
	}
	bpf_rcu_read_unlock();
	return before;
}
