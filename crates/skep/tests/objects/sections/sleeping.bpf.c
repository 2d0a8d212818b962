/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Sleepable programs, which bracket what they read. Two functions are the host's: `observe` says what of the runtime it
 * finds, `churn` deletes what the program found and puts other elements wherever they may go.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;
extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;

static __u64 (*observe)(void) = (void *)1000;
static __u64 (*churn)(void) = (void *)1001;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} table SEC(".maps");

/* What is observed before, in, and after a bracket, a byte each. */
SEC("raw.s/brackets")
int brackets(void)
{
	__u64 seen = observe();

	bpf_rcu_read_lock();
	seen |= observe() << 8;
	bpf_rcu_read_unlock();
	return seen | observe() << 16;
}

/* The same program where it may not sleep. */
SEC("raw/plain")
int plain(void)
{
	__u64 seen = observe();

	bpf_rcu_read_lock();
	seen |= observe() << 8;
	bpf_rcu_read_unlock();
	return seen | observe() << 16;
}

/* Without preemption, twice over. */
SEC("raw.s/preempt")
int preempt(void)
{
	__u64 seen;

	if (!bpf_preempt_disable)
		return -1;
	bpf_preempt_disable();
	bpf_preempt_disable();
	bpf_preempt_enable();
	seen = observe();
	bpf_preempt_enable();
	return seen | observe() << 8;
}

/* Changes a map outside of brackets, and reads it in one. */
SEC("raw.s/counts")
int counts(void)
{
	__u32 key = 7;
	__u64 one = 1, *value, found = 0;

	bpf_map_update_elem(&table, &key, &one, BPF_ANY);
	bpf_rcu_read_lock();
	value = bpf_map_lookup_elem(&table, &key);
	if (value)
		found = __sync_fetch_and_add(value, 41) + 41;
	bpf_rcu_read_unlock();
	bpf_map_delete_elem(&table, &key);
	return found + observe();
}

/* What an element holds while others take its place, found and read in a bracket. */
SEC("raw.s/inside")
int inside(void)
{
	__u32 key = 7;
	__u64 *value, found = 0;

	bpf_rcu_read_lock();
	value = bpf_map_lookup_elem(&table, &key);
	if (value) {
		churn();
		found = *value;
	}
	bpf_rcu_read_unlock();
	return found;
}

/* The same without one. */
SEC("raw.s/outside")
int outside(void)
{
	__u32 key = 7;
	__u64 *value = bpf_map_lookup_elem(&table, &key);

	if (!value)
		return 0;
	churn();
	return *value;
}

char _license[] SEC("license") = "Dual MIT/GPL";
