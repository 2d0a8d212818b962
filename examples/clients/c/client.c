/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Loads the skeleton, runs its program on packets, and prints the records and samples.
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

/* A sample is padded; what follows the event are the packet's bytes. */
static void sampled(void *context, int cpu, void *data, unsigned int size)
{
	const struct event *event = data;
	const char *packet = (const char *)(event + 1);

	(void)context;
	(void)cpu;
	if (size >= sizeof(*event) + 14)
		printf("packet %llu: %llu bytes, \"%.14s\"...\n", event->number, event->length, packet);
}

static void lost(void *context, int cpu, unsigned long long count)
{
	(void)context;
	printf("CPU %d: %llu samples lost\n", cpu, count);
}

static int failed(const char *what)
{
	perror(what);
	return 1;
}

int main(void)
{
	static const unsigned int lengths[] = { 60, 100, 64, 1500 };
	static char packet[1500] = "who and whence and what";
	struct events *events = events__open();
	struct ring_buffer *records;
	struct perf_buffer *samples;
	int program;

	if (!events)
		return failed("open");
	events->rodata->least = 64;
	if (events__load(events))
		return failed("load");
	records = ring_buffer__new(bpf_map__fd(events->maps.events), print, NULL, NULL);
	if (!records)
		return failed("ring buffer");
	samples = perf_buffer__new(bpf_map__fd(events->maps.samples), 1, sampled, lost, NULL, NULL);
	if (!samples)
		return failed("perf buffer");
	program = bpf_program__fd(events->progs.watch);
	for (int at = 0; at < 4; at++) {
		LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = packet, .data_size_in = lengths[at], .repeat = 1);

		if (bpf_prog_test_run_opts(program, &run))
			return failed("test run");
		printf("%u bytes: %s\n", lengths[at], run.retval == 1 ? "dropped" : "passed");
	}
	if (ring_buffer__poll(records, 1000) != 3)
		return failed("poll");
	if (perf_buffer__poll(samples, 1000) != 1)
		return failed("poll of samples");
	printf("%llu seen, %llu lost\n", (unsigned long long)events->bss->seen,
	       (unsigned long long)events->bss->lost);
	perf_buffer__free(samples);
	ring_buffer__free(records);
	events__destroy(events);
	return 0;
}
