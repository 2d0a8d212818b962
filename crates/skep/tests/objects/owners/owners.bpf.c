// SPDX-License-Identifier: MIT OR Apache-2.0
// Objects that programs allocate: in lists, trees and kept pointers, shared by counts, and one for each CPU.
#include <stdbool.h>
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
#define __percpu_kptr __attribute__((btf_type_tag("percpu_kptr")))
#define holder_of(at, type, member) ((type *)((void *)(at) - __builtin_offsetof(type, member)))

extern void *bpf_obj_new_impl(__u64 type, void *meta) __ksym;
extern void bpf_obj_drop_impl(void *object, void *meta) __ksym;
extern void *bpf_percpu_obj_new_impl(__u64 type, void *meta) __ksym;
extern void bpf_percpu_obj_drop_impl(void *object, void *meta) __ksym;
extern void *bpf_refcount_acquire_impl(void *object, void *meta) __ksym;
extern int bpf_list_push_front_impl(struct bpf_list_head *head, struct bpf_list_node *node, void *meta,
				    __u64 off) __ksym;
extern int bpf_list_push_back_impl(struct bpf_list_head *head, struct bpf_list_node *node, void *meta,
				   __u64 off) __ksym;
extern struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *head) __ksym;
extern struct bpf_list_node *bpf_list_pop_back(struct bpf_list_head *head) __ksym;
extern int bpf_rbtree_add_impl(struct bpf_rb_root *root, struct bpf_rb_node *node,
			       bool(less)(struct bpf_rb_node *a, const struct bpf_rb_node *b), void *meta,
			       __u64 off) __ksym;
extern struct bpf_rb_node *bpf_rbtree_remove(struct bpf_rb_root *root, struct bpf_rb_node *node) __ksym;
extern struct bpf_rb_node *bpf_rbtree_first(struct bpf_rb_root *root) __ksym;
extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;

#define new(type) ((type *)bpf_obj_new_impl(bpf_core_type_id_local(type), NULL))
#define drop(object) bpf_obj_drop_impl(object, NULL)
#define share(object) bpf_refcount_acquire_impl(object, NULL)

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// In a list and in a tree at the same time.
struct item {
	__u64 key;
	struct bpf_list_node listed;
	struct bpf_rb_node sorted;
	struct bpf_refcount owners;
	__u64 twice;
};

// In a list of a value, with a list of its own.
struct leaf {
	__u64 number;
	struct bpf_list_node node;
};

struct branch {
	struct bpf_list_node node;
	struct bpf_spin_lock lock;
	struct bpf_list_head leaves __contains(leaf, node);
	__u64 number;
};

struct note {
	__u64 first;
	struct note __kptr *next;
	__u64 second;
};

struct count {
	__u64 events;
	__u64 bytes;
};

struct store {
	struct bpf_spin_lock lock;
	struct bpf_list_head list __contains(item, listed);
	struct bpf_rb_root tree __contains(item, sorted);
};

struct shelf {
	__u64 data;
	struct bpf_spin_lock lock;
	struct bpf_list_head branches __contains(branch, node);
	struct note __kptr *note;
	struct count __percpu_kptr *counts;
};

struct drawer {
	__u64 data;
	struct note __kptr *note;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct store);
} stores SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, struct shelf);
} shelves SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, struct drawer);
} drawers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct drawer);
} desks SEC(".maps");

// Beside global variables.
SEC(".data.own") struct bpf_spin_lock own_lock __attribute__((aligned(8)));
SEC(".data.own") struct bpf_list_head own_list __contains(leaf, node) __attribute__((aligned(8)));

// Parameters and results of the programs.
__u64 key, found, other;
int error;

static __always_inline struct store *the_store(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&stores, &zero);
}

static __always_inline struct shelf *the_shelf(void)
{
	__u32 at = key;

	return bpf_map_lookup_elem(&shelves, &at);
}

static bool less(struct bpf_rb_node *a, const struct bpf_rb_node *b)
{
	return holder_of(a, struct item, sorted)->key < holder_of(b, struct item, sorted)->key;
}

#define PUSHES(name, push)                                                                         \
	SEC("xdp") int name(struct xdp_md *ctx __attribute__((unused)))                                                    \
	{                                                                                          \
		struct store *store = the_store();                                                 \
		struct item *item;                                                                 \
                                                                                                   \
		if (!store)                                                                        \
			return 0;                                                                  \
		item = new(struct item);                                                           \
		if (!item) {                                                                       \
			error = -12;                                                               \
			return 0;                                                                  \
		}                                                                                  \
		item->key = key;                                                                   \
		item->twice = 2 * key;                                                             \
		bpf_spin_lock(&store->lock);                                                       \
		error = push(&store->list, &item->listed, NULL, 0);                                \
		bpf_spin_unlock(&store->lock);                                                     \
		return 1;                                                                          \
	}

PUSHES(push_front, bpf_list_push_front_impl)
PUSHES(push_back, bpf_list_push_back_impl)

#define POPS(name, pop)                                                                            \
	SEC("xdp") int name(struct xdp_md *ctx __attribute__((unused)))                                                    \
	{                                                                                          \
		struct store *store = the_store();                                                 \
		struct bpf_list_node *node;                                                        \
		struct item *item;                                                                 \
                                                                                                   \
		if (!store)                                                                        \
			return 0;                                                                  \
		bpf_spin_lock(&store->lock);                                                       \
		node = pop(&store->list);                                                          \
		bpf_spin_unlock(&store->lock);                                                     \
		if (!node)                                                                         \
			return 0;                                                                  \
		item = holder_of(node, struct item, listed);                                       \
		found = item->key;                                                                 \
		other = item->twice;                                                               \
		drop(item);                                                                        \
		return 1;                                                                          \
	}

POPS(pop_front, bpf_list_pop_front)
POPS(pop_back, bpf_list_pop_back)

SEC("xdp") int add(struct xdp_md *ctx __attribute__((unused)))
{
	struct store *store = the_store();
	struct item *item;

	if (!store)
		return 0;
	item = new(struct item);
	if (!item)
		return 0;
	item->key = key;
	item->twice = 2 * key;
	bpf_spin_lock(&store->lock);
	error = bpf_rbtree_add_impl(&store->tree, &item->sorted, less, NULL, 0);
	bpf_spin_unlock(&store->lock);
	return 1;
}

SEC("xdp") int take_least(struct xdp_md *ctx __attribute__((unused)))
{
	struct store *store = the_store();
	struct bpf_rb_node *node;
	struct item *item;

	if (!store)
		return 0;
	bpf_spin_lock(&store->lock);
	node = bpf_rbtree_first(&store->tree);
	if (!node) {
		bpf_spin_unlock(&store->lock);
		return 0;
	}
	node = bpf_rbtree_remove(&store->tree, node);
	bpf_spin_unlock(&store->lock);
	if (!node)
		return 0;
	item = holder_of(node, struct item, sorted);
	found = item->key;
	other = item->twice;
	drop(item);
	return 1;
}

// In the list and in the tree, and twice in the list: the second time fails.
SEC("xdp") int add_to_both(struct xdp_md *ctx __attribute__((unused)))
{
	struct store *store = the_store();
	struct item *item, *again, *once_more;

	if (!store)
		return 0;
	item = new(struct item);
	if (!item)
		return 0;
	item->key = key;
	item->twice = 2 * key;
	again = share(item);
	once_more = share(item);
	bpf_spin_lock(&store->lock);
	bpf_list_push_back_impl(&store->list, &item->listed, NULL, 0);
	bpf_rbtree_add_impl(&store->tree, &again->sorted, less, NULL, 0);
	error = bpf_list_push_front_impl(&store->list, &once_more->listed, NULL, 0);
	bpf_spin_unlock(&store->lock);
	return 1;
}

// A branch with two leaves onto the shelf.
SEC("xdp") int grow(struct xdp_md *ctx __attribute__((unused)))
{
	struct shelf *shelf = the_shelf();
	struct branch *branch;
	struct leaf *leaf;
	int i;

	if (!shelf)
		return 0;
	branch = new(struct branch);
	if (!branch)
		return 0;
	branch->number = key;
	for (i = 0; i < 2; i++) {
		leaf = new(struct leaf);
		if (!leaf)
			break;
		leaf->number = i;
		bpf_spin_lock(&branch->lock);
		bpf_list_push_back_impl(&branch->leaves, &leaf->node, NULL, 0);
		bpf_spin_unlock(&branch->lock);
	}
	bpf_spin_lock(&shelf->lock);
	bpf_list_push_front_impl(&shelf->branches, &branch->node, NULL, 0);
	bpf_spin_unlock(&shelf->lock);
	return 1;
}

// A note, with the one before it as its next.
SEC("xdp") int keep(struct xdp_md *ctx __attribute__((unused)))
{
	struct shelf *shelf = the_shelf();
	struct note *note, *old;

	if (!shelf)
		return 0;
	note = new(struct note);
	if (!note)
		return 0;
	note->first = key;
	note->second = other;
	old = bpf_kptr_xchg(&shelf->note, NULL);
	if (old) {
		old = bpf_kptr_xchg(&note->next, old);
		if (old)
			drop(old);
	}
	old = bpf_kptr_xchg(&shelf->note, note);
	if (old)
		drop(old);
	return 1;
}

SEC("xdp") int look(struct xdp_md *ctx __attribute__((unused)))
{
	struct shelf *shelf = the_shelf();
	struct note *note;

	found = 0;
	if (!shelf)
		return 0;
	bpf_rcu_read_lock();
	note = shelf->note;
	if (note) {
		found = note->first;
		other = note->second;
	}
	bpf_rcu_read_unlock();
	return found != 0;
}

// Deletes the element first, and then puts something into it.
SEC("xdp") int delete_and_grow(struct xdp_md *ctx __attribute__((unused)))
{
	struct shelf *shelf = the_shelf();
	__u32 at = key;
	struct branch *branch;
	struct note *note;

	if (!shelf)
		return 0;
	bpf_map_delete_elem(&shelves, &at);
	branch = new(struct branch);
	if (branch) {
		bpf_spin_lock(&shelf->lock);
		bpf_list_push_front_impl(&shelf->branches, &branch->node, NULL, 0);
		bpf_spin_unlock(&shelf->lock);
	}
	note = new(struct note);
	if (note) {
		note = bpf_kptr_xchg(&shelf->note, note);
		if (note)
			drop(note);
	}
	return 1;
}

// A note into an element that other keys evict, and into one per CPU.
SEC("xdp") int file(struct xdp_md *ctx __attribute__((unused)))
{
	struct drawer empty = {}, *drawer;
	__u32 at = key, desk = key & 1;
	struct note *note;

	bpf_map_update_elem(&drawers, &at, &empty, BPF_ANY);
	drawer = bpf_map_lookup_elem(&drawers, &at);
	if (!drawer)
		return 0;
	note = new(struct note);
	if (!note)
		return 0;
	note = bpf_kptr_xchg(&drawer->note, note);
	if (note)
		drop(note);
	if (key & 2)
		bpf_map_update_elem(&desks, &desk, &empty, BPF_ANY);
	drawer = bpf_map_lookup_elem(&desks, &desk);
	if (!drawer)
		return 0;
	note = new(struct note);
	if (!note)
		return 0;
	note = bpf_kptr_xchg(&drawer->note, note);
	if (note)
		drop(note);
	return 1;
}

SEC("xdp") int count(struct xdp_md *ctx __attribute__((unused)))
{
	struct shelf *shelf = the_shelf();
	struct count __percpu_kptr *counts;
	struct count *one;
	int cpu;

	if (!shelf)
		return 0;
	counts = shelf->counts;
	if (!counts) {
		counts = bpf_percpu_obj_new_impl(bpf_core_type_id_local(struct count), NULL);
		if (!counts)
			return 0;
		counts = bpf_kptr_xchg(&shelf->counts, counts);
		if (counts)
			bpf_percpu_obj_drop_impl(counts, NULL);
	}
	counts = shelf->counts;
	if (!counts)
		return 0;
	one = bpf_this_cpu_ptr(counts);
	one->events += 1;
	one->bytes += key;
	found = other = error = 0;
	for (cpu = 0; cpu < 8; cpu++) {
		one = bpf_per_cpu_ptr(counts, cpu);
		if (!one) {
			error += 1;
			continue;
		}
		found += one->events;
		other += one->bytes;
	}
	return 1;
}

SEC("xdp") int beside_globals(struct xdp_md *ctx __attribute__((unused)))
{
	struct leaf *leaf = new(struct leaf);
	struct bpf_list_node *node;

	if (!leaf)
		return 0;
	leaf->number = key;
	bpf_spin_lock(&own_lock);
	bpf_list_push_back_impl(&own_list, &leaf->node, NULL, 0);
	if (key % 3 == 0) {
		node = bpf_list_pop_front(&own_list);
		bpf_spin_unlock(&own_lock);
		if (!node)
			return 0;
		leaf = holder_of(node, struct leaf, node);
		found = leaf->number;
		drop(leaf);
		return 1;
	}
	bpf_spin_unlock(&own_lock);
	return 2;
}

// Fills and empties a tree in one run, compared with nothing but its order.
SEC("xdp") int sorts(struct xdp_md *ctx __attribute__((unused)))
{
	struct store *store = the_store();
	struct bpf_rb_node *node;
	struct item *item;
	__u64 number = key, last = 0;
	int i;

	if (!store)
		return 0;
	found = 0;
	for (i = 0; i < 40; i++) {
		item = new(struct item);
		if (!item)
			return 0;
		number = number * 6364136223846793005ull + 1442695040888963407ull;
		item->key = number >> 40;
		bpf_spin_lock(&store->lock);
		bpf_rbtree_add_impl(&store->tree, &item->sorted, less, NULL, 0);
		bpf_spin_unlock(&store->lock);
	}
	for (i = 0; i < 40; i++) {
		bpf_spin_lock(&store->lock);
		node = bpf_rbtree_first(&store->tree);
		if (!node) {
			bpf_spin_unlock(&store->lock);
			break;
		}
		node = bpf_rbtree_remove(&store->tree, node);
		bpf_spin_unlock(&store->lock);
		if (!node)
			break;
		item = holder_of(node, struct item, sorted);
		if (item->key >= last)
			found++;
		last = item->key;
		drop(item);
	}
	return 1;
}
