/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The types of a host that has a cache: which requests are admitted, and what it tells when something was evicted. */
#include <linux/types.h>

#define required __attribute__((btf_decl_tag("required")))

struct owner {
	__u64 number;
	__s32 quota;
};

struct request {
	__u64 key;
	__u32 size;
	__u32 hits;
	struct owner *owner;
};

struct cache_policy {
	__u32 (*admit)(struct request *request, __u64 room) required;
	void (*evicted)(__u64 key, __s8 why);
	__s16 (*score)(struct request *request, __s32 now, _Bool hot);
	__u64 (*busy)(struct request *request);
	char name[16];
	__u32 flags;
};

/* Says which parameters may be null. */
__u64 cache_policy__busy(struct request *request__nullable)
{
	return request__nullable != 0;
}

/* The compiler describes the structures of variables, and of others only their names. */
struct cache_policy cache_policy;
struct request request;
struct owner owner;
