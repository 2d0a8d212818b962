/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What arrives at a port: counted by protocol, and reported to the client by a ring buffer (XDP) and by perf events
 * (tc). A client sets the protocol that is refused before it loads this.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct count {
	__u64 arrived, passed;
};

struct record {
	__u32 length;
	__u16 protocol;
	__u16 refused;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u16);
	__type(value, struct count);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} samples SEC(".maps");

const volatile __u16 refused = 0;

static struct count *count_of(__u16 protocol)
{
	struct count none = {};

	bpf_map_update_elem(&counts, &protocol, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&counts, &protocol);
}

SEC("xdp")
int arrive(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	struct record record = { .length = end - data };
	struct count *count;

	if ((void *)(ethernet + 1) > end)
		return XDP_ABORTED;
	record.protocol = bpf_ntohs(ethernet->h_proto);
	record.refused = record.protocol == refused;
	count = count_of(record.protocol);
	if (count)
		__sync_fetch_and_add(&count->arrived, 1);
	bpf_ringbuf_output(&records, &record, sizeof(record), 0);
	return record.refused ? XDP_DROP : XDP_PASS;
}

/* aya does not know the section "tc". */
SEC("classifier")
int pass(struct __sk_buff *skb)
{
	struct record record = { .length = skb->len, .protocol = bpf_ntohs(skb->protocol) };
	struct count *count = count_of(record.protocol);

	if (count)
		__sync_fetch_and_add(&count->passed, 1);
	bpf_perf_event_output(skb, &samples, BPF_F_CURRENT_CPU, &record, sizeof(record));
	return TC_ACT_OK;
}

/* Sends a frame of a test run out of its device, to the device at the other end. */
SEC("xdp")
int send(struct xdp_md *ctx)
{
	(void)ctx;
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
