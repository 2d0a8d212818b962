// Plug-ins that were compiled when the host's structures looked like this. The host of the tests has moved, widened and
// added fields, and has dropped one.

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct peer {
	const __u16 port;
};

struct request {
	const __u32 gone;
	const __u32 status;
	const __u8 *path;
	const __u8 *path_end;
	const struct peer *peer;
	__u32 mark;
};

#pragma clang attribute pop

/* What every later host has: found wherever it is. */
SEC("request_filter")
int reads(struct request *request)
{
	const struct peer *peer = request->peer;
	const __u8 *path = request->path;

	request->mark = request->status;
	if (path + 1 > request->path_end)
		return -1;
	if (!peer)
		return -2;
	return path[0] * 100000 + peer->port;
}

/* What the host no longer has. */
SEC("request_filter")
int needs(struct request *request)
{
	return request->gone;
}

/* The same by somebody who asks first. */
SEC("request_filter")
int asks(struct request *request)
{
	if (bpf_core_field_exists(request->gone))
		return request->gone;
	return 7;
}

char LICENSE[] SEC("license") = "GPL";
