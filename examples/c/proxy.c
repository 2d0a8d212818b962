/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A TCP proxy whose policy is a BPF program.
 *
 *   proxy POLICY.o BACKEND BACKEND
 *
 * It listens on a free port of the loopback address and prints "listening on PORT". For each connection it reads the first
 * bytes, asks the policy, and closes the connection or passes one request and its answer between client and backend (a
 * port of the loopback address). Commands are lines on standard input:
 *
 *   policy NAME   replaces the policy by this program of the object, while connections are served
 *   counters      prints the counters of the policies
 *   quit          (or the end of the input) ends the proxy
 *
 * A thread serves each connection; all of them run the same hook.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <skep.h>

enum { FIRST = 64, BACKENDS = 2 };

/* ANCHOR: type */
/* The host's own structure; policies see the fields that the table names, in the table's order. */
struct connection {
	skep_bytes first;
	uint64_t number;
	uint32_t address;
	uint16_t port;
	uint16_t backend;
	int socket;
};

#define FIELD(name, kind, bytes, flags)                                                                               \
	{                                                                                                             \
		#name, SKEP_FIELD_##kind, bytes, 0, flags, offsetof(struct connection, name), NULL                    \
	}

static const skep_field fields[] = {
	FIELD(address, NUMBER, 4, 0), FIELD(port, NUMBER, 2, 0), FIELD(backend, NUMBER, 2, SKEP_FIELD_WRITABLE),
	FIELD(number, NUMBER, 8, 0),  FIELD(first, SLICE, 0, 0),
};
static const skep_struct context = { "connection", fields, sizeof(fields) / sizeof(fields[0]) };
static const skep_verdict verdicts[] = { { "CONNECTION_DENY", 0 }, { "CONNECTION_ACCEPT", 1 } };
static const skep_type_options connection_type = {
	sizeof(connection_type), "connection", &context, "connection_verdict", verdicts, 2,
};
/* ANCHOR_END: type */

static skep_type *type;
static skep_hook *hook;
static uint16_t backends[BACKENDS];

static void check(int status)
{
	if (status < 0) {
		fprintf(stderr, "proxy: %s\n", skep_error_message());
		exit(1);
	}
}

static void system_check(int result, const char *what)
{
	if (result < 0) {
		perror(what);
		exit(1);
	}
}

static struct sockaddr_in loopback(uint16_t port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return address;
}

/* Passes on what one end sends, until it ends. */
static int pass(int from, int to)
{
	char bytes[4096];
	ssize_t count = read(from, bytes, sizeof(bytes));

	for (ssize_t done = 0, wrote; done < count; done += wrote)
		if ((wrote = write(to, bytes + done, count - done)) < 0)
			return 0;
	return count > 0;
}

static void connect_ends(int client, int server)
{
	struct pollfd ends[2] = { { .fd = client, .events = POLLIN }, { .fd = server, .events = POLLIN } };

	while (ends[1].fd >= 0 && poll(ends, 2, -1) > 0) {
		if (ends[0].revents && !pass(client, server)) {
			shutdown(server, SHUT_WR);
			ends[0].fd = -1;
		}
		if (ends[1].revents && !pass(server, client))
			ends[1].fd = -1;
	}
}

/* The policies' results: the last one counts, and 0 ends the run of the hook. */
static int decide(void *verdict, const skep_program *program, uint64_t result)
{
	(void)program;
	*(int *)verdict = (int32_t)result;
	return result == 0;
}

static void *serve(void *argument)
{
	struct connection *connection = argument;
	uint8_t first[FIRST];
	ssize_t count = read(connection->socket, first, sizeof(first));
	int verdict = 0, server;

	connection->first.data = first;
	connection->first.size = count > 0 ? count : 0;
	check(skep_hook_run_typed(hook, type, connection, decide, &verdict));
	if (verdict && connection->backend < BACKENDS) {
		struct sockaddr_in address = loopback(backends[connection->backend]);

		server = socket(AF_INET, SOCK_STREAM, 0);
		if (server >= 0 && connect(server, (struct sockaddr *)&address, sizeof(address)) == 0 &&
		    write(server, first, connection->first.size) >= 0)
			connect_ends(connection->socket, server);
		if (server >= 0)
			close(server);
	}
	close(connection->socket);
	free(connection);
	return NULL;
}

static void print_counters(const skep_map *counters)
{
	uint64_t count[3];

	for (uint32_t key = 0; key < 3; key++)
		check(skep_map_lookup(counters, &key, sizeof(key), &count[key], sizeof(count[key])));
	printf("denied %" PRIu64 ", first %" PRIu64 ", second %" PRIu64 "\n", count[0], count[1], count[2]);
}

/* Executes a command. Returns whether to go on. */
static int command(const char *line, const skep_module *module, const skep_map *counters, skep_link *link)
{
	const skep_program *program;
	char name[64];

	if (sscanf(line, "policy %63s", name) == 1) {
		if (skep_module_program(module, name, &program) || skep_link_replace(link, program, NULL))
			printf("%s\n", skep_error_message());
		else
			printf("policy %s\n", name);
	} else if (strncmp(line, "counters", 8) == 0) {
		print_counters(counters);
	} else {
		return strncmp(line, "quit", 4) != 0;
	}
	return 1;
}

static void accept_one(int listener, uint64_t number)
{
	struct connection *connection = calloc(1, sizeof(*connection));
	struct sockaddr_in from;
	socklen_t size = sizeof(from);
	pthread_t thread;

	if (!connection)
		return;
	connection->socket = accept(listener, (struct sockaddr *)&from, &size);
	if (connection->socket < 0) {
		free(connection);
		return;
	}
	connection->number = number;
	connection->address = from.sin_addr.s_addr;
	connection->port = ntohs(from.sin_port);
	if (pthread_create(&thread, NULL, serve, connection) == 0) {
		pthread_detach(thread);
	} else {
		close(connection->socket);
		free(connection);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = loopback(0);
	socklen_t size = sizeof(address);
	const skep_program *program;
	const skep_map *counters;
	skep_builder *builder;
	skep_runtime *runtime;
	skep_object *object;
	skep_module *module;
	skep_link *link;
	char line[128];
	int listener;

	if (argc != 4) {
		fprintf(stderr, "usage: proxy POLICY.o BACKEND BACKEND\n");
		return 2;
	}
	for (int i = 0; i < BACKENDS; i++)
		backends[i] = atoi(argv[2 + i]);
	signal(SIGPIPE, SIG_IGN);

	check(skep_type_new(&connection_type, &type));
	check(skep_builder_new(&builder));
	check(skep_builder_type(builder, type));
	check(skep_builder_build(builder, NULL, &runtime));
	skep_builder_free(builder);
	check(skep_object_open(argv[1], &object));
	check(skep_module_load(runtime, object, NULL, &module));
	skep_object_free(object);
	check(skep_module_program(module, "open_door", &program));
	check(skep_module_map(module, "counters", &counters));
	check(skep_hook_new(runtime, &hook));
	check(skep_hook_attach(hook, program, &link));

	listener = socket(AF_INET, SOCK_STREAM, 0);
	system_check(listener, "socket");
	system_check(bind(listener, (struct sockaddr *)&address, size), "bind");
	system_check(listen(listener, 16), "listen");
	system_check(getsockname(listener, (struct sockaddr *)&address, &size), "getsockname");
	printf("listening on %d\n", ntohs(address.sin_port));
	fflush(stdout);

	for (uint64_t number = 1;;) {
		struct pollfd events[2] = { { .fd = listener, .events = POLLIN },
					    { .fd = STDIN_FILENO, .events = POLLIN } };

		if (poll(events, 2, -1) < 0 && errno != EINTR)
			break;
		if (events[0].revents & POLLIN)
			accept_one(listener, number++);
		if (events[1].revents) {
			/* Commands come one at a time, so the buffer of stdin holds no second one. */
			if (!fgets(line, sizeof(line), stdin) || !command(line, module, counters, link))
				break;
			fflush(stdout);
		}
	}
	close(listener);
	skep_link_free(link);
	/* Threads that still serve connections run the hook: what they use stays until the process ends. */
	skep_module_free(module);
	skep_runtime_free(runtime);
	return 0;
}
