/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};

typedef struct {
	__s64 counter;
} atomic64_t;

struct bpf_map_ops;

struct bpf_map {
	const struct bpf_map_ops *ops;
	__u32 map_type;
	__u32 key_size;
	__u32 value_size;
	__u32 max_entries;
	__u32 id;
	char name[16];
	atomic64_t refcnt;
	atomic64_t usercnt;
};

struct bpf_prog_aux {
	__u32 id;
	__u32 stack_depth;
	char name[16];
};

struct bpf_prog {
	__u32 type;
	__u8 tag[8];
	struct bpf_prog_aux *aux;
};

struct bpf_link {
	__u32 id;
	__u32 type;
	struct bpf_prog *prog;
};
struct sock_common {
	__u64 skc_addrpair;
	__u32 skc_portpair;
	__u16 skc_family;
	__u8 skc_state;
};

struct sock {
	struct sock_common __sk_common;
};

struct inet_sock {
	struct sock sk;
};

struct udp_sock {
	struct inet_sock inet;
};
#pragma clang attribute pop

struct bpf_iter__udp {
	struct bpf_iter_meta *meta;
	struct udp_sock *udp_sk;
	__u64 uid;
	__u64 bucket;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
	__u64 uid;
};

struct bpf_iter__bpf_map_elem {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	void *key;
	void *value;
};

struct bpf_iter__bpf_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
};

struct bpf_iter__bpf_prog {
	struct bpf_iter_meta *meta;
	struct bpf_prog *prog;
};

struct bpf_iter__bpf_link {
	struct bpf_iter_meta *meta;
	struct bpf_link *link;
};

char LICENSE[] SEC("license") = "GPL";
