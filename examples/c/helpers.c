/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Helpers of the host: typed prototypes, data of their own, errors as error numbers.
 *
 *   helpers HELPERS.o           bills three packets and prints the accounts
 *   helpers --header            prints the declarations for authors of programs
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <skep.h>

enum { ACCOUNTS = 2 };

/* What the helpers work on. Programs run on any thread, so it has a lock. */
struct ledger {
	pthread_mutex_t lock;
	uint64_t left[ACCOUNTS];
};

static void check(int status)
{
	if (status < 0) {
		fprintf(stderr, "helpers: %s\n", skep_error_message());
		exit(1);
	}
}

/* The account of an IPv4 address: 10.0.0.x is 0, 10.0.1.x is 1. */
static int64_t account_of(void *context, skep_call *call, const skep_value *args)
{
	const uint8_t *address = args[0].data;

	(void)context, (void)call;
	if (args[0].size != 4 || address[0] != 10 || address[1] != 0 || address[2] >= ACCOUNTS)
		return -ENOENT;
	return address[2];
}

static int64_t charge(void *context, skep_call *call, const skep_value *args)
{
	struct ledger *ledger = context;
	int64_t result = -EDQUOT;

	(void)call;
	if (args[0].number >= ACCOUNTS)
		return -EINVAL;
	pthread_mutex_lock(&ledger->lock);
	if (ledger->left[args[0].number] >= args[1].number) {
		ledger->left[args[0].number] -= args[1].number;
		result = 0;
	}
	pthread_mutex_unlock(&ledger->lock);
	return result;
}

int main(int argc, char **argv)
{
	static struct ledger ledger = { PTHREAD_MUTEX_INITIALIZER, { 150, 1000 } };
	const skep_helper helpers[] = {
		{ .size = sizeof(skep_helper),
		  .name = "account_of",
		  .id = 1000,
		  .result = SKEP_RESULT_ERRNO,
		  .params = { { SKEP_PARAM_BYTES, 0 } },
		  .call = account_of },
		{ .size = sizeof(skep_helper),
		  .name = "charge",
		  .id = 1001,
		  .result = SKEP_RESULT_ERRNO,
		  .params = { { SKEP_PARAM_NUMBER, 0 }, { SKEP_PARAM_NUMBER, 0 } },
		  .call = charge,
		  .context = &ledger },
	};
	const skep_program *program;
	skep_builder *builder;
	skep_runtime *runtime;
	skep_object *object;
	skep_module *module;
	skep_packet *packet;
	uint8_t frame[100] = { 0 };
	uint32_t verdict;
	char *header;

	if (argc != 2) {
		fprintf(stderr, "usage: helpers HELPERS.o | --header\n");
		return 2;
	}
	check(skep_builder_new(&builder));
	for (int i = 0; i < 2; i++)
		check(skep_builder_helper(builder, &helpers[i]));
	check(skep_builder_build(builder, NULL, &runtime));
	skep_builder_free(builder);
	if (strcmp(argv[1], "--header") == 0) {
		check(skep_runtime_header(runtime, &header));
		fputs(header, stdout);
		skep_text_free(header);
		skep_runtime_free(runtime);
		return 0;
	}
	check(skep_object_open(argv[1], &object));
	check(skep_module_load(runtime, object, NULL, &module));
	skep_object_free(object);
	check(skep_module_program(module, "bill", &program));
	check(skep_packet_new(frame, sizeof(frame), &packet));
	for (int i = 0; i < 3; i++) {
		/* The first two are of account 0, which can pay for one of them; the third is of nobody. */
		frame[26] = i < 2 ? 10 : 192;
		check(skep_packet_set(packet, frame, sizeof(frame)));
		check(skep_program_run(program, packet, &verdict));
		printf("packet %d: verdict %" PRIu32 "\n", i + 1, verdict);
	}
	printf("left: %" PRIu64 " and %" PRIu64 "\n", ledger.left[0], ledger.left[1]);
	skep_packet_free(packet);
	skep_module_free(module);
	skep_runtime_free(runtime);
	return 0;
}
