// SPDX-License-Identifier: MIT OR Apache-2.0
// The maps of masks.bpf.c, with an object of the program's own where that file has a CPU mask.
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

struct box {
	__u64 number;
	struct sheet __kptr *mask;
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

SEC("raw") int opens_the_box(void)
{
	__u32 zero = 0;
	struct rack *rack = bpf_map_lookup_elem(&racks, &zero);
	struct sheet *sheet;
	struct box *box;
	int found = 0;

	if (!rack)
		return 0;
	box = bpf_kptr_xchg(&rack->box, NULL);
	if (!box)
		box = bpf_obj_new_impl(bpf_core_type_id_local(struct box), NULL);
	if (!box)
		return 0;
	sheet = bpf_kptr_xchg(&box->mask, NULL);
	if (sheet) {
		found = sheet->words[128];
		bpf_obj_drop_impl(sheet, NULL);
	}
	bpf_obj_drop_impl(box, NULL);
	return found;
}
