/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The types of what programs of type iter are given where the host has no types of a kernel's: what skep_abi says that
 * iterators show.
 */
#include <linux/types.h>

struct seq_file {
	__u64 : 64;
};

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};

typedef struct {
	__s64 counter;
} atomic64_t;

struct bpf_map {
	__u32 id;
	__u32 map_type;
	__u32 key_size;
	__u32 value_size;
	__u32 max_entries;
	__u32 map_flags;
	__u64 map_extra;
	char name[16];
	atomic64_t refcnt;
	atomic64_t usercnt;
};

struct bpf_prog_aux {
	__u32 id;
	__u32 attach_btf_id;
	char name[16];
};

struct bpf_prog {
	__u32 type;
	__u32 expected_attach_type;
	__u8 tag[8];
	struct bpf_prog_aux *aux;
};

struct bpf_link {
	__u32 id;
	__u32 type;
	struct bpf_prog *prog;
};

typedef struct {
	__u8 bytes[16];
} in6_addr_t;

/* Addresses and ports of both ends: the other's first. */
struct sock_common {
	__u64 skc_addrpair;
	__u32 skc_portpair;
	__u16 skc_family;
	__u8 skc_state;
	int skc_bound_dev_if;
	in6_addr_t skc_v6_daddr;
	in6_addr_t skc_v6_rcv_saddr;
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

typedef unsigned int uid_t;

#pragma clang diagnostic ignored "-Wunused-parameter"

/* The targets of iterators, and what they give to programs. */
int bpf_iter_bpf_map(struct bpf_iter_meta *meta, struct bpf_map *map)
{
	return 0;
}

int bpf_iter_bpf_map_elem(struct bpf_iter_meta *meta, struct bpf_map *map, void *key, void *value)
{
	return 0;
}

int bpf_iter_bpf_prog(struct bpf_iter_meta *meta, struct bpf_prog *prog)
{
	return 0;
}

int bpf_iter_bpf_link(struct bpf_iter_meta *meta, struct bpf_link *link)
{
	return 0;
}

int bpf_iter_tcp(struct bpf_iter_meta *meta, struct sock_common *sk_common, uid_t uid)
{
	return 0;
}

int bpf_iter_udp(struct bpf_iter_meta *meta, struct udp_sock *udp_sk, uid_t uid, int bucket)
{
	return 0;
}

/* The compiler describes the structures of variables. */
struct seq_file seq_file;
struct bpf_prog_aux bpf_prog_aux;
struct sock_common sock_common;
struct udp_sock udp_sock;
