// SPDX-License-Identifier: MIT OR Apache-2.0
// A search tree in an arena: programs allocate and link its nodes, and the host follows the same pointers.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define ARENA 33 /* BPF_MAP_TYPE_ARENA, which older headers lack */
#define PAGE 4096
#define DEEPEST 64
#define in_arena __attribute__((address_space(1)))

struct {
	__uint(type, ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16);
} heap SEC(".maps");

extern void in_arena *bpf_arena_alloc_pages(void *map, void in_arena *address, __u32 pages,
					    int node, __u64 flags) __ksym;
extern void bpf_arena_free_pages(void *map, void in_arena *address, __u32 pages) __ksym;

typedef struct node in_arena *node_pointer;

struct node {
	node_pointer smaller, larger;
	__u64 key;
	__u64 count;
};

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// Variables in the arena: where the tree begins, nodes that are not in it yet, linked by
// their keys: a null pointer need not be stored then, which clang 19 compiles without a cast.
node_pointer in_arena root;
node_pointer in_arena unused;
// How many nodes there are, and how many keys found none left.
__u64 in_arena nodes = 0;
__u64 in_arena refused = 0;
// What is added to each key. The host may set it.
__u64 in_arena step = 7;

// The page that `grow` has allocated last, elsewhere.
node_pointer newest;

// Allocates a page of nodes.
SEC("syscall")
int grow(void *ctx)
{
	node_pointer page = bpf_arena_alloc_pages(&heap, 0, 1, -1, 0);

	(void)ctx;
	if (!page)
		return 1;
	newest = page;
	for (__u32 i = 0; i < PAGE / sizeof(struct node); i++) {
		page[i].key = (__u64)unused;
		unused = &page[i];
	}
	return 0;
}

// Frees the page that was allocated last, whatever points into it.
SEC("syscall")
int shrink(void *ctx)
{
	(void)ctx;
	bpf_arena_free_pages(&heap, newest, 1);
	return 0;
}

// Counts the key in the first eight bytes of the packet.
SEC("xdp")
int add(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	node_pointer in_arena *place = &root;
	node_pointer node;
	__u64 key;

	if (data + sizeof(key) > end)
		return XDP_ABORTED;
	key = *(__u64 *)data + step;
	for (int depth = 0; depth < DEEPEST; depth++) {
		node = *place;
		if (!node)
			break;
		if (node->key == key) {
			__sync_fetch_and_add(&node->count, 1);
			return XDP_PASS;
		}
		place = key < node->key ? &node->smaller : &node->larger;
	}
	node = unused;
	if (*place || !node) {
		refused++;
		return XDP_DROP;
	}
	unused = (node_pointer)node->key;
	node->key = key;
	node->count = 1;
	*place = node;
	nodes++;
	return XDP_TX;
}
