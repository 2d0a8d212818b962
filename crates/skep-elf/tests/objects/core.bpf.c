/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Every question of CO-RE, for targets whose structures are not these.
 */
#include "bpf.h"

#define __relocatable __attribute__((preserve_access_index))

char LICENSE[] SEC("license") = "GPL";

enum color { RED = 1, GREEN = 2, BLUE = 3 };
enum wide { SMALL = 1, LARGE = 0x100000000 };

struct place {
	u32 x;
	u32 y;
} __relocatable;

struct task {
	u32 pid;
	u32 counter;
	char *name;
	struct place places[4];
	struct {
		u32 inner;
	};
	u32 on : 1;
	u32 level : 6;
	int sign : 4;
	int balance;
	struct task *parent;
} __relocatable;

struct task___old {
	u32 state_then;
} __relocatable;

struct nowhere {
	int missing;
} __relocatable;

typedef u64 (*method)(struct task *, u32);

/* Bytes in the structure are read by loads whose offsets change. */
SEC("raw")
u64 loads(struct task *t)
{
	return t->counter + (u64)t->parent->parent;
}

SEC("raw")
u64 stores(struct task *t)
{
	t->counter = 7;
	t->balance = 3;
	return 0;
}

SEC("raw")
u64 elements(struct task *t)
{
	return t->places[2].y;
}

SEC("raw")
u64 anonymous(struct task *t)
{
	return t->inner;
}

SEC("raw")
u64 narrowed(struct task *t)
{
	return (u64)t->name;
}

SEC("raw")
u64 negative(struct task *t)
{
	return t->balance;
}

#define FIELD(field, question) __builtin_preserve_field_info(((struct task *)0)->field, question)

SEC("raw")
u64 level(void *bytes)
{
	u64 at = FIELD(level, 0);
	return at << 32 | FIELD(level, 1) << 24 | FIELD(level, 3) << 16 | FIELD(level, 4) << 8 | FIELD(level, 5);
}

SEC("raw")
u64 sign(void *bytes)
{
	u64 at = FIELD(sign, 0);
	return at << 32 | FIELD(sign, 1) << 24 | FIELD(sign, 3) << 16 | FIELD(sign, 4) << 8 | FIELD(sign, 5);
}

SEC("raw")
u64 exist(void *bytes)
{
	u64 found = FIELD(counter, 2);
	found = found << 1 | __builtin_preserve_field_info(((struct task___old *)0)->state_then, 2);
	found = found << 1 | __builtin_preserve_field_info(((struct nowhere *)0)->missing, 2);
	found = found << 1 | __builtin_preserve_type_info(*(struct task *)0, 0);
	found = found << 1 | __builtin_preserve_type_info(*(struct nowhere *)0, 0);
	found = found << 1 | __builtin_preserve_enum_value(*(enum color *)RED, 0);
	return found << 1 | __builtin_preserve_enum_value(*(enum color *)BLUE, 0);
}

SEC("raw")
u64 guarded(struct nowhere *n)
{
	if (__builtin_preserve_field_info(n->missing, 2))
		return n->missing;
	return 5;
}

SEC("raw")
u64 sizes(void *bytes)
{
	return (u64)__builtin_preserve_type_info(*(struct place *)0, 1) << 32 |
	       __builtin_preserve_type_info(*(struct nowhere *)0, 1) << 16 | FIELD(balance, 1);
}

SEC("raw")
u64 values(void *bytes)
{
	return __builtin_preserve_enum_value(*(enum color *)GREEN, 1);
}

SEC("raw")
u64 wide_values(void *bytes)
{
	return __builtin_preserve_enum_value(*(enum wide *)LARGE, 1);
}

SEC("raw")
u64 local_id(void *bytes)
{
	return __builtin_btf_type_id(*(struct place *)0, 0);
}

SEC("raw")
u64 target_id(void *bytes)
{
	return __builtin_btf_type_id(*(struct place *)0, 1);
}

SEC("raw")
u64 matches(void *bytes)
{
	u64 found = __builtin_preserve_type_info(*(struct place *)0, 2);
	found = found << 1 | __builtin_preserve_type_info(*(struct task *)0, 2);
	return found << 1 | __builtin_preserve_type_info(*(enum color *)0, 2);
}
