/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Runs the firewall of ../firewall.bpf.c over frames: the shortest useful host.
 *
 *   run_firewall FIREWALL.o ADDRESS...    blocks these IPv4 addresses, and runs the firewall on a frame from each and one
 *                                         from 10.0.0.7
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <skep.h>

enum { FRAME = 54, ADDRESS = 26 };

/* An Ethernet frame with a TCP segment to 10.0.0.2, port 80; the source address is filled in. */
static uint8_t frame[FRAME] = { [12] = 0x08, 0x00, 0x45, 0, 0,	40, 0, 0, 0, 0, 64, 6, [30] = 10, 0, 0, 2,
				0x9c, 0x40, 0, 80, [46] = 0x50, 0x02 };

/* A key of the trie of blocked addresses. */
struct prefix {
	uint32_t bits;
	uint8_t address[4];
};

static int run(const skep_program *firewall, skep_packet *packet, const char *address)
{
	uint32_t verdict;

	if (inet_pton(AF_INET, address, frame + ADDRESS) != 1 || skep_packet_set(packet, frame, sizeof(frame)) ||
	    skep_program_run(firewall, packet, &verdict))
		return 1;
	printf("%s: %s\n", address, verdict == 2 ? "pass" : "drop"); /* XDP_PASS */
	return 0;
}

/* ANCHOR: main */
int main(int argc, char **argv)
{
	const skep_program *firewall;
	const skep_map *blocked;
	skep_runtime *runtime = NULL;
	skep_object *object = NULL;
	skep_module *module = NULL;
	skep_packet *packet = NULL;
	const uint32_t reason = 1;
	int failed = argc < 2 || skep_runtime_new(NULL, &runtime) || skep_object_open(argv[1], &object) ||
		     skep_module_load(runtime, object, NULL, &module) ||
		     skep_module_program(module, "firewall", &firewall) || skep_module_map(module, "blocked4", &blocked) ||
		     skep_packet_new(frame, sizeof(frame), &packet);

	for (int i = 2; i < argc && !failed; i++) {
		struct prefix key = { .bits = 32 };

		failed = inet_pton(AF_INET, argv[i], key.address) != 1 ||
			 skep_map_update(blocked, &key, sizeof(key), &reason, sizeof(reason), SKEP_ANY) ||
			 run(firewall, packet, argv[i]);
	}
	failed = failed || run(firewall, packet, "10.0.0.7");
	if (failed)
		fprintf(stderr, "run_firewall: %s\n", argc < 2 ? "usage: run_firewall FIREWALL.o ADDRESS..." :
								  skep_error_message());
	skep_packet_free(packet);
	skep_module_free(module);
	skep_object_free(object);
	skep_runtime_free(runtime);
	return failed;
}
/* ANCHOR_END: main */
