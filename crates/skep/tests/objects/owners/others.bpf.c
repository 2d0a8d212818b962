// SPDX-License-Identifier: MIT OR Apache-2.0
// Names of owners.bpf.c for other structures: a longer item.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

struct bpf_list_head {
	__u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_list_node {
	__u64 opaque[3];
} __attribute__((aligned(8)));

struct bpf_rb_root {
	__u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_rb_node {
	__u64 opaque[4];
} __attribute__((aligned(8)));

struct bpf_refcount {
	__u32 opaque[1];
} __attribute__((aligned(4)));

#define __contains(type, node) __attribute__((btf_decl_tag("contains:" #type ":" #node)))
#define holder_of(at, type, member) ((type *)((void *)(at) - __builtin_offsetof(type, member)))

extern void *bpf_obj_new_impl(__u64 type, void *meta) __ksym;
extern void bpf_obj_drop_impl(void *object, void *meta) __ksym;
extern struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *head) __ksym;

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct item {
	__u64 key;
	struct bpf_list_node listed;
	struct bpf_rb_node sorted;
	struct bpf_refcount owners;
	__u64 twice;
	__u64 more[100];
};

struct store {
	struct bpf_spin_lock lock;
	struct bpf_list_head list __contains(item, listed);
	struct bpf_rb_root tree __contains(item, sorted);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct store);
} stores SEC(".maps");

SEC("xdp") int pops_what_it_does_not_know(struct xdp_md *ctx __attribute__((unused)))
{
	struct bpf_list_node *node;
	struct store *store;
	struct item *item;
	__u32 zero = 0;
	int found;

	store = bpf_map_lookup_elem(&stores, &zero);
	if (!store)
		return 0;
	bpf_spin_lock(&store->lock);
	node = bpf_list_pop_front(&store->list);
	bpf_spin_unlock(&store->lock);
	if (node)
		item = holder_of(node, struct item, listed);
	else
		item = bpf_obj_new_impl(bpf_core_type_id_local(struct item), NULL);
	if (!item)
		return 0;
	found = item->more[99];
	bpf_obj_drop_impl(item, NULL);
	return found;
}
