// SPDX-License-Identifier: MIT OR Apache-2.0
// The map of masks.bpf.c, with an object of the program's own where that file has a CPU mask.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

extern void *bpf_obj_new_impl(__u64 type, void *meta) __ksym;
extern void bpf_obj_drop_impl(void *object, void *meta) __ksym;

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct sheet {
	__u64 words[129];
};

struct shelf {
	struct sheet __kptr *mask;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, struct shelf);
} shelves SEC(".maps");

SEC("raw") int reads_beyond_the_end(void)
{
	__u32 zero = 0;
	struct shelf *shelf = bpf_map_lookup_elem(&shelves, &zero);
	struct sheet *sheet;
	int found;

	if (!shelf)
		return 0;
	sheet = bpf_kptr_xchg(&shelf->mask, NULL);
	if (!sheet)
		sheet = bpf_obj_new_impl(bpf_core_type_id_local(struct sheet), NULL);
	if (!sheet)
		return 0;
	found = sheet->words[128];
	bpf_obj_drop_impl(sheet, NULL);
	return found;
}
