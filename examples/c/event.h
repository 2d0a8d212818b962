/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef EVENT_H
#define EVENT_H

/* A record of the ring buffer, for the program and its host. */
struct event {
	unsigned int number;
	unsigned int length; /* of the packet in bytes */
};

#endif
