/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Records of a ring buffer in an event loop: epoll(7) waits, a thread runs the program.
 *
 *   events EVENTS.o COUNT     runs the program COUNT times on another thread, and prints each record
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <skep.h>

#include "event.h"

struct work {
	const skep_program *program;
	int count;
};

static void check(int status)
{
	if (status < 0) {
		fprintf(stderr, "events: %s\n", skep_error_message());
		exit(1);
	}
}

static void *run(void *argument)
{
	static const uint8_t frame[1000];
	struct work *work = argument;
	skep_packet *packet;
	uint32_t verdict;

	check(skep_packet_new(frame, sizeof(frame), &packet));
	for (int i = 1; i <= work->count; i++) {
		check(skep_packet_set(packet, frame, 60 + i));
		check(skep_program_run(work->program, packet, &verdict));
	}
	skep_packet_free(packet);
	return NULL;
}

static int print(void *context, uint32_t cpu, const void *record, size_t size)
{
	const struct event *event = record;

	(void)cpu;
	if (size != sizeof(*event))
		return 1;
	printf("packet %u: %u bytes\n", event->number, event->length);
	++*(int *)context;
	return 0;
}

int main(int argc, char **argv)
{
	struct work work = { .count = argc == 3 ? atoi(argv[2]) : 0 };
	struct epoll_event wanted = { .events = EPOLLIN }, ready;
	const skep_map *map;
	skep_ringbuf *records;
	skep_runtime *runtime;
	skep_object *object;
	skep_module *module;
	pthread_t thread;
	int epoll, seen = 0;

	if (work.count <= 0 || work.count > 100) {
		fprintf(stderr, "usage: events EVENTS.o COUNT (1 to 100)\n");
		return 2;
	}
	check(skep_runtime_new(NULL, &runtime));
	check(skep_object_open(argv[1], &object));
	check(skep_module_load(runtime, object, NULL, &module));
	skep_object_free(object);
	check(skep_module_program(module, "watch", &work.program));
	check(skep_module_map(module, "events", &map));
	check(skep_ringbuf_new(map, 0, &records));

	/* ANCHOR: loop */
	epoll = epoll_create1(EPOLL_CLOEXEC);
	if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, skep_ringbuf_fd(records), &wanted) < 0 ||
	    pthread_create(&thread, NULL, run, &work) != 0) {
		perror("events");
		return 1;
	}
	while (seen < work.count && epoll_wait(epoll, &ready, 1, -1) >= 0)
		while (skep_ringbuf_poll(records, 0, print, &seen) > 0)
			;
	/* ANCHOR_END: loop */
	pthread_join(thread, NULL);
	close(epoll);
	skep_ringbuf_free(records);
	skep_module_free(module);
	skep_runtime_free(runtime);
	return 0;
}
