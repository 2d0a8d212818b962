/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A map as it was declared before maps had types.
 */
#include "bpf.h"

struct bpf_map_def {
	u32 type, key_size, value_size, max_entries, map_flags;
};

struct bpf_map_def SEC("maps") old = { HASH, 4, 4, 10, 0 };

SEC("xdp")
int program(void *context)
{
	u32 key = 0;

	return !!bpf_map_lookup_elem(&old, &key);
}
