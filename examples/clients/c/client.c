/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Loads the skeleton, runs its program on packets, and prints the records.
 */
#include <stdio.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "events.skel.h"

struct event {
	unsigned long long number, length;
};

static int print(void *context, void *data, size_t size)
{
	const struct event *event = data;

	(void)context;
	if (size < sizeof(*event))
		return -1;
	printf("packet %llu: %llu bytes\n", event->number, event->length);
	return 0;
}

static int failed(const char *what)
{
	perror(what);
	return 1;
}

int main(void)
{
	static const unsigned int lengths[] = { 60, 100, 64, 1500 };
	static char packet[1500];
	struct events *events = events__open();
	struct ring_buffer *records;
	int program;

	if (!events)
		return failed("open");
	events->rodata->least = 64;
	if (events__load(events))
		return failed("load");
	records = ring_buffer__new(bpf_map__fd(events->maps.events), print, NULL, NULL);
	if (!records)
		return failed("ring buffer");
	program = bpf_program__fd(events->progs.watch);
	for (int at = 0; at < 4; at++) {
		LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = packet, .data_size_in = lengths[at], .repeat = 1);

		if (bpf_prog_test_run_opts(program, &run))
			return failed("test run");
		printf("%u bytes: %s\n", lengths[at], run.retval == 1 ? "dropped" : "passed");
	}
	if (ring_buffer__poll(records, 1000) != 3)
		return failed("poll");
	printf("%llu seen, %llu lost\n", (unsigned long long)events->bss->seen,
	       (unsigned long long)events->bss->lost);
	ring_buffer__free(records);
	events__destroy(events);
	return 0;
}
