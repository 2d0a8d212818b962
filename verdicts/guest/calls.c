/* Makes the system calls of a script, and prints what Linux answers to each. `verdicts/src/calls.rs` says what the lines
 * mean. It reads /requests as the first process of a virtual machine, and standard input otherwise. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#define MOST 128
#define NAME 32
#define ATTR 8192

static struct block { char name[NAME]; unsigned char *bytes; size_t size; } blocks[MOST];
static struct opened { char name[NAME]; int fd; unsigned command; } files[MOST];
static char groups[MOST][NAME];
static unsigned block_count, file_count, group_count;
static unsigned char attr[ATTR] __attribute__((aligned(8)));

static void trouble(const char *what, const char *line)
{
	printf("T %s: %s\n", what, line);
}

static struct block *block(const char *name, size_t length)
{
	for (unsigned i = 0; i < block_count; i++)
		if (strlen(blocks[i].name) == length && !memcmp(blocks[i].name, name, length))
			return &blocks[i];
	return NULL;
}

static struct block *new_block(const char *name, size_t size)
{
	struct block *found = block(name, strlen(name));
	if (!found && block_count < MOST)
		found = &blocks[block_count++];
	if (!found)
		return NULL;
	snprintf(found->name, NAME, "%s", name);
	found->bytes = calloc(1, size ? size : 1);
	found->size = size;
	return found;
}

static int *descriptor(const char *name)
{
	for (unsigned i = 0; i < file_count; i++)
		if (!strcmp(files[i].name, name))
			return &files[i].fd;
	return NULL;
}

/* The identifier of a program or a link. */
static uint32_t id_of(int fd)
{
	uint32_t info[58] = { 0 };
	uint64_t words[2] = { (uint32_t)fd | (uint64_t)sizeof info << 32, (uintptr_t)info };
	return syscall(SYS_bpf, 15, words, sizeof words) ? 0 : info[1];
}

/* Whether a command makes objects of that kind. */
static int makes_kind(unsigned command, const char *kind)
{
	if (!strcmp(kind, "program"))
		return command == 5 || command == 13;
	return command == 17 || command == 28 || command == 30;
}

/* Identifiers as the names of descriptors. */
static void identifiers(const char *kind, const unsigned char *at, unsigned long count)
{
	printf("R");
	for (unsigned long i = 0; i < count; i++) {
		uint32_t id;
		const char *name = "?";
		memcpy(&id, at + 4 * i, 4);
		for (unsigned j = 0; j < file_count; j++)
			if (files[j].fd >= 0 && makes_kind(files[j].command, kind) && id_of(files[j].fd) == id)
				name = files[j].name;
		printf(" %s", id ? name : "-");
	}
	printf("\n");
}

static void keep(const char *name, int fd, unsigned command)
{
	int *old = descriptor(name);
	if (old) {
		close(*old);
		*old = fd;
	} else if (file_count < MOST) {
		snprintf(files[file_count].name, NAME, "%s", name);
		files[file_count].command = command;
		files[file_count++].fd = fd;
	} else {
		trouble("too many descriptors", name);
	}
}

/* A number, `$F`, `#F` or `&A` or `&A+N`. */
static uint64_t value(const char *text)
{
	if (*text == '$') {
		int *fd = descriptor(text + 1);
		if (!fd)
			trouble("no descriptor", text);
		return fd ? (uint64_t)(int64_t)*fd : 0;
	}
	if (*text == '#') {
		int *fd = descriptor(text + 1);
		return fd ? id_of(*fd) : 0;
	}
	if (*text == '&') {
		size_t length = strcspn(text + 1, "+");
		struct block *found = block(text + 1, length);
		if (!found)
			trouble("no block", text);
		uint64_t more = text[1 + length] ? strtoull(text + 2 + length, NULL, 0) : 0;
		return found ? (uint64_t)(uintptr_t)found->bytes + more : 0;
	}
	return strtoull(text, NULL, 0);
}

static void store(unsigned char *at, unsigned width, uint64_t number)
{
	memcpy(at, &number, width <= 8 ? width : 8);
}

static void hex(const unsigned char *bytes, size_t count)
{
	printf("R ");
	for (size_t i = 0; i < count; i++)
		printf("%02x", bytes[i]);
	printf("\n");
}

static void forget(void)
{
	for (unsigned i = 0; i < file_count; i++)
		close(files[i].fd);
	for (unsigned i = 0; i < block_count; i++)
		free(blocks[i].bytes);
	while (group_count > 0)
		rmdir(groups[--group_count]);
	block_count = file_count = 0;
}

static void call(char *words)
{
	char *rest, *word = strtok_r(words, " ", &rest), *result = NULL;
	unsigned command = word ? (unsigned)strtoul(word, NULL, 0) : 0;
	word = strtok_r(NULL, " ", &rest);
	unsigned size = word ? (unsigned)strtoul(word, NULL, 0) : 0;
	memset(attr, 0, sizeof attr);
	while ((word = strtok_r(NULL, " ", &rest))) {
		if (!strcmp(word, "=>")) {
			result = strtok_r(NULL, " ", &rest);
			continue;
		}
		char *width = strchr(word, ':'), *number = strchr(word, '=');
		unsigned long at = strtoul(word, NULL, 0);
		if (!width || !number || at + 8 > sizeof attr) {
			trouble("what is this", word);
			continue;
		}
		store(attr + at, (unsigned)strtoul(width + 1, NULL, 0), value(number + 1));
	}
	long answer = syscall(SYS_bpf, command, attr, size);
	printf("R %d\n", answer < 0 ? errno : 0);
	/* What could not be opened is -1. A name's descriptor before it is closed, and one without a name. */
	static const unsigned makes[] = { 0, 5, 7, 13, 14, 17, 18, 19, 28, 30, 32, 33, 36 };
	int makes_one = 0;
	for (unsigned i = 0; i < sizeof makes / sizeof *makes; i++)
		makes_one |= makes[i] == command;
	if (result) {
		keep(result, (int)answer, command);
	} else if (makes_one && answer >= 0) {
		close((int)answer);
	}
}

int main(void)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t length;
	int alone = getpid() == 1;
	if (alone && (mount("sysfs", "/sys", "sysfs", 0, NULL) || mount("devtmpfs", "/dev", "devtmpfs", 0, NULL) ||
		      mount("bpffs", "/sys/fs/bpf", "bpf", 0, NULL) || mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, NULL) ||
		      mount("proc", "/proc", "proc", 0, NULL) || !freopen("/requests", "r", stdin) || !freopen("/dev/ttyS1", "w", stdout)))
		perror("calls");
	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((length = getline(&line, &room, stdin)) > 0) {
		if (line[length - 1] == '\n')
			line[--length] = 0;
		char name[NAME] = "", text[NAME] = "";
		unsigned long a = 0, b = 0;
		if (!strncmp(line, "case ", 5)) {
			forget();
			/* Devices without programs. */
			if (alone && unshare(CLONE_NEWNET))
				trouble("no new namespace", line);
			printf("P %s\n", line + 5);
		} else if (!strncmp(line, "call ", 5)) {
			call(line + 5);
		} else if (sscanf(line, "room %31s %lu", name, &a) == 2) {
			new_block(name, a);
		} else if (sscanf(line, "bytes %31s", name) == 1) {
			char *digits = strrchr(line, ' ') + 1;
			struct block *made = new_block(name, strlen(digits) / 2);
			for (size_t i = 0; made && i < made->size; i++) {
				char two[3] = { digits[2 * i], digits[2 * i + 1], 0 };
				made->bytes[i] = (unsigned char)strtoul(two, NULL, 16);
			}
		} else if (sscanf(line, "poke %31s %lu %lu %31s", name, &a, &b, text) == 4) {
			struct block *found = block(name, strlen(name));
			if (found && a + b <= found->size)
				store(found->bytes + a, (unsigned)b, value(text));
			else
				trouble("outside", line);
		} else if (sscanf(line, "show %31s %lu %lu", name, &a, &b) == 3) {
			struct block *found = block(name, strlen(name));
			if (found && a + b <= found->size)
				hex(found->bytes + a, b);
			else
				trouble("outside", line);
		} else if (sscanf(line, "attr %lu %lu", &a, &b) == 2 && a + b <= sizeof attr) {
			hex(attr + a, b);
		} else if (sscanf(line, "ids %31s %31s %lu %lu", text, name, &a, &b) == 4) {
			struct block *found = block(name, strlen(name));
			if (found && a + 4 * b <= found->size)
				identifiers(text, found->bytes + a, b);
			else
				trouble("outside", line);
		} else if (sscanf(line, "group %31s %15s", name, text) == 2 && group_count < MOST) {
			snprintf(groups[group_count], NAME, "/sys/fs/cgroup/%.15s", text);
			mkdir(groups[group_count], 0755);
			keep(name, open(groups[group_count++], O_RDONLY | O_DIRECTORY), 0);
		} else if (sscanf(line, "network %31s", name) == 1) {
			keep(name, open("/proc/self/ns/net", O_RDONLY), 0);
		} else if (!strcmp(line, "hide") || !strcmp(line, "unhide")) {
			FILE *setting = fopen("/proc/sys/kernel/kptr_restrict", "w");
			if (!setting || fputs(*line == 'h' ? "2" : "0", setting) < 0 || fclose(setting))
				trouble("no such setting", line);
		} else if (sscanf(line, "close %31s", name) == 1) {
			int *fd = descriptor(name);
			if (fd) {
				close(*fd);
				*fd = -1;
			}
		} else if (length) {
			trouble("what is this", line);
		}
	}
	forget();
	free(line);
	if (alone) {
		printf("DONE\n");
		fflush(stdout);
		tcdrain(fileno(stdout));
		reboot(RB_AUTOBOOT);
	}
	return 0;
}
