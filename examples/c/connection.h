/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What policies of the proxy see of a connection: the type that proxy.c describes, as skep_type_header prints it.
 */
#ifndef CONNECTION_H
#define CONNECTION_H

struct connection {
	__u32 address; /* of the client, in network byte order */
	__u16 port;    /* of the client */
	__u16 backend; /* which backend gets the connection; policies may write it */
	__u64 number;  /* of the connection, from 1 */
	const __u8 *first;
	const __u8 *first_end; /* the first bytes that the client sent */
} __attribute__((preserve_access_index));

enum connection_verdict { CONNECTION_DENY = 0, CONNECTION_ACCEPT = 1 };

#endif
