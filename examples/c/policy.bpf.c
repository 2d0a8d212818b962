/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Two policies of examples/c/proxy.c. Both count connections by verdict and backend.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "connection.h"

/* Connections: [0] denied, [1] to the first backend, [2] to the second. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 3);
} counters SEC(".maps");

static int decide(struct connection *connection, int accept, __u16 backend)
{
	__u32 key = accept ? 1 + (backend & 1) : 0;
	__u64 *counter = bpf_map_lookup_elem(&counters, &key);

	if (counter)
		__sync_fetch_and_add(counter, 1);
	connection->backend = backend;
	return accept ? CONNECTION_ACCEPT : CONNECTION_DENY;
}

/* Lets everything pass to the first backend. */
SEC("connection")
int open_door(struct connection *connection)
{
	return decide(connection, 1, 0);
}

/* Denies requests that begin with an exclamation mark, and sends those in capitals to the second backend. */
SEC("connection")
int doorman(struct connection *connection)
{
	const __u8 *first = connection->first;

	if (first + 1 > connection->first_end || first[0] == '!')
		return decide(connection, 0, 0);
	return decide(connection, 1, first[0] >= 'A' && first[0] <= 'Z');
}
