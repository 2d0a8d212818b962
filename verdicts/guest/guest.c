/* Asks the running kernel's verifier about programs: reads requests, loads each program through bpf(2), unloads it,
 * and prints the verdict with the end of the verifier's log. Runs as root in a virtual machine of its own, since a
 * kernel may hang on what it is fed here.
 *
 * A request is lines of text, each a letter and its words; one answer follows for each `.`:
 *
 *   P NAME                      a new program; forgets what the lines below said
 *   t TYPE ATTACH FLAGS         numbers of bpf(2)
 *   l LICENSE
 *   b ID                        attach_btf_id
 *   B KIND NAME                 the same by BTF kind and name in the kernel's BTF
 *   S STRUCT MEMBER             the same for a member of a structure of functions, whose number is the attach type
 *   T HEX                       BTF of the program and of the maps after this line
 *   F HEX                       func_info, records of 8 bytes
 *   m KIND KEY VALUE ENTRIES FLAGS KEY_TYPE VALUE_TYPE EXTRA INNER [HEX]
 *                               a map, created once for equal lines; INNER is the number of an earlier map or -1;
 *                               HEX is the value at key 0 of a map that is frozen then
 *   f                           the maps after this line are the request's own, and are closed with it
 *   k NAME                      a kernel function or variable, for calls and loads by number
 *   c CAPS                      capabilities that are dropped for the load, a bit mask in hex
 *   K                           keeps the program if it loads, as target of later ones
 *   A                           attach_prog_fd is the kept program
 *   v LEVEL LINES               log level, and how many of the log's last lines are wanted, 0 for all
 *   i HEX                       instructions; maps and kernel names by number: `map[N]` has source 5 or 6 in its
 *                               64-bit load, kernel functions source 2 in the call, kernel variables 3
 *   r PACKET CONTEXT            runs the program, if it loads, on a packet and a context in HEX, or -
 *   o OP KEY VALUE FLAGS        an operation on the last map, done at once: lookup, update, delete, next or take; key and
 *                               value in HEX or -, or as value the name of something that has a descriptor:
 *                               a socket (listening, connected, udp, grouped), prog, map (the one before the last), other
 *                               (a map of another shape), event, cgroup, none (-1)
 *   .                           asks
 *
 * An answer is `P NAME RESULT`, with 0 or an errno, the log's lines after `L `, `R ERRNO RESULT PACKET CONTEXT`
 * if it was run, and `.`. An operation is answered by `O ERRNO VALUE`, the value or key that it found in HEX.
 *
 * As the first process of a machine it reads /requests, answers on the second serial line (the first is the kernel's own),
 * where a line `RELEASE ...` names the kernel first, and restarts the machine when it is done.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <termios.h>
#include <unistd.h>

#define LOG_SIZE (16u << 20)
#define MANY 64
#define TCP_PORT 8080
#define UDP_PORT 5353
#define GROUP_PORT 5354

struct cached {
	char *key;
	int fd;
	struct cached *next;
};

static char *log_text;
static struct cached *cache;
static int kept = -1;
/* Sockets of 127.0.0.1. */
static int listener = -1, receiver = -1;

static int bpf(int command, union bpf_attr *attr, unsigned size)
{
	return (int)syscall(SYS_bpf, command, attr, size);
}

static void *or_die(void *memory)
{
	if (!memory) {
		fprintf(stderr, "out of memory\n");
		exit(2);
	}
	return memory;
}

/* What is cached under that key, or -1. */
static int find(const char *key)
{
	for (struct cached *c = cache; c; c = c->next)
		if (!strcmp(c->key, key))
			return c->fd;
	return -1;
}

static int keep(const char *key, int fd)
{
	struct cached *c = or_die(malloc(sizeof *c));
	c->key = or_die(strdup(key));
	c->fd = fd;
	c->next = cache;
	cache = c;
	return fd;
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Bytes of lower-case hexadecimal digits, in place of them. */
static size_t from_hex(char *text)
{
	unsigned char *out = (unsigned char *)text;
	size_t n = 0;
	for (; digit(text[2 * n]) >= 0 && digit(text[2 * n + 1]) >= 0; n++)
		out[n] = (unsigned char)(digit(text[2 * n]) << 4 | digit(text[2 * n + 1]));
	return n;
}

/* The kernel's own BTF: a table of types by id. */
static struct btf_header *vmlinux;
static const struct btf_type **types;
static unsigned type_count;

static size_t type_size(const struct btf_type *t)
{
	unsigned n = BTF_INFO_VLEN(t->info);
	switch (BTF_INFO_KIND(t->info)) {
	case BTF_KIND_INT: case BTF_KIND_VAR: case BTF_KIND_DECL_TAG: return sizeof *t + 4;
	case BTF_KIND_ARRAY: return sizeof *t + 12;
	case BTF_KIND_STRUCT: case BTF_KIND_UNION: case BTF_KIND_DATASEC: case BTF_KIND_ENUM64:
		return sizeof *t + 12 * n;
	case BTF_KIND_ENUM: case BTF_KIND_FUNC_PROTO: return sizeof *t + 8 * n;
	default: return sizeof *t;
	}
}

static void read_vmlinux(void)
{
	size_t room = 64u << 20, size = 0, got;
	FILE *file = fopen("/sys/kernel/btf/vmlinux", "r");
	if (!file)
		return;
	char *bytes = or_die(malloc(room));
	while ((got = fread(bytes + size, 1, room - size, file)) > 0)
		size += got;
	fclose(file);
	vmlinux = (struct btf_header *)bytes;
	char *at = bytes + vmlinux->hdr_len + vmlinux->type_off, *end = at + vmlinux->type_len;
	types = or_die(malloc(sizeof *types * (vmlinux->type_len / sizeof(struct btf_type) + 1)));
	for (type_count = 1; at < end; type_count++) {
		types[type_count] = (const struct btf_type *)at;
		at += type_size(types[type_count]);
	}
}

/* The id of that name, of a function or variable if `kind` is 0. 0 if there is none. */
static int btf_id(unsigned kind, const char *name)
{
	char key[256];
	snprintf(key, sizeof key, "btf %u %s", kind, name);
	int id = find(key);
	if (id >= 0)
		return id;
	if (!vmlinux)
		read_vmlinux();
	if (!vmlinux)
		return 0;
	const char *strings = (char *)vmlinux + vmlinux->hdr_len + vmlinux->str_off;
	for (unsigned i = 1; i < type_count; i++) {
		unsigned k = BTF_INFO_KIND(types[i]->info);
		int fits = kind ? k == kind : k == BTF_KIND_FUNC || k == BTF_KIND_VAR;
		if (fits && !strcmp(strings + types[i]->name_off, name))
			return keep(key, (int)i);
	}
	return keep(key, 0);
}

/* The number of a member of a structure of the kernel's, or -1. */
static int member_number(int id, const char *name)
{
	if (id <= 0 || BTF_INFO_KIND(types[id]->info) != BTF_KIND_STRUCT)
		return -1;
	const char *strings = (char *)vmlinux + vmlinux->hdr_len + vmlinux->str_off;
	const struct btf_member *members = (const struct btf_member *)(types[id] + 1);
	for (unsigned i = 0; i < BTF_INFO_VLEN(types[id]->info); i++)
		if (!strcmp(strings + members[i].name_off, name))
			return (int)i;
	return -1;
}

/* One request. */
static struct {
	char name[128], license[64];
	unsigned type, attach, flags, attach_id, level, lines;
	int btf, fds[MANY], ids[MANY];
	unsigned key_size, value_size; /* of the last map */
	unsigned map_count, id_count, func_count;
	unsigned char funcs[8 * 256];
	unsigned long long drop;
	int keeps, targets, fresh;
	char trouble[256];
	char *packet, *context;
} asked;

static void forget(void)
{
	free(asked.packet);
	for (unsigned i = 0; asked.fresh && i < asked.map_count; i++)
		if (asked.fds[i] >= 0)
			close(asked.fds[i]);
	memset(&asked, 0, sizeof asked);
	strcpy(asked.license, "GPL");
	asked.btf = -1;
	asked.level = 1;
	asked.lines = 4;
}

__attribute__((format(printf, 1, 2))) static void trouble(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	if (!asked.trouble[0])
		vsnprintf(asked.trouble, sizeof asked.trouble, format, arguments);
	va_end(arguments);
}

static void add_btf(char *hex)
{
	char *key = or_die(strdup(hex));
	asked.btf = find(key);
	if (asked.btf < 0) {
		union bpf_attr attr = { 0 };
		attr.btf_size = (unsigned)from_hex(hex);
		attr.btf = (uintptr_t)hex;
		attr.btf_log_buf = (uintptr_t)log_text;
		attr.btf_log_size = LOG_SIZE;
		attr.btf_log_level = 1;
		log_text[0] = 0;
		asked.btf = bpf(BPF_BTF_LOAD, &attr, sizeof attr);
		if (asked.btf >= 0)
			keep(key, asked.btf);
		else
			trouble("BTF: %s: %s", strerror(errno), log_text);
	}
	free(key);
}

/* Writes a value that is given in hexadecimal digits and freezes the map; 0 where that fails. */
static int freeze(int fd, unsigned key_size, unsigned value_size, const char *data)
{
	union bpf_attr attr = { 0 };
	if (data[0] != ' ' || digit(data[1]) < 0)
		return 1;
	char *value = or_die(strdup(data + 1)), *key = or_die(calloc(1, key_size));
	int fits = from_hex(value) == value_size;
	attr.map_fd = (unsigned)fd;
	attr.key = (uintptr_t)key;
	attr.value = (uintptr_t)value;
	int done = fits && !bpf(BPF_MAP_UPDATE_ELEM, &attr, sizeof attr);
	memset(&attr, 0, sizeof attr);
	attr.map_fd = (unsigned)fd;
	done = done && !bpf(BPF_MAP_FREEZE, &attr, sizeof attr);
	free(value);
	free(key);
	return done;
}

static void add_map(const char *line)
{
	char key[4096];
	unsigned kind, key_size, value_size, entries, flags, key_type, value_type;
	unsigned long long extra;
	int inner, data = 0;
	if (asked.map_count == MANY ||
	    sscanf(line, "%u %u %u %u %u %u %u %llu %d%n", &kind, &key_size, &value_size, &entries, &flags, &key_type,
		   &value_type, &extra, &inner, &data) != 9) {
		trouble("bad map: %s", line);
		return;
	}
	asked.key_size = key_size;
	asked.value_size = value_size;
	int inner_fd = inner >= 0 && inner < (int)asked.map_count ? asked.fds[inner] : 0;
	snprintf(key, sizeof key, "map %s %d %d", line, key_type || value_type ? asked.btf : -1, inner_fd);
	int fd = asked.fresh ? -1 : find(key);
	if (fd < 0) {
		union bpf_attr attr = { 0 };
		attr.map_type = kind;
		attr.key_size = key_size;
		attr.value_size = value_size;
		attr.max_entries = entries;
		attr.map_flags = flags;
		attr.map_extra = extra;
		attr.inner_map_fd = (unsigned)inner_fd;
		if (key_type || value_type) {
			attr.btf_fd = (unsigned)asked.btf;
			attr.btf_key_type_id = key_type;
			attr.btf_value_type_id = value_type;
		}
		fd = bpf(BPF_MAP_CREATE, &attr, sizeof attr);
		if (fd < 0 || !freeze(fd, key_size, value_size, line + data))
			trouble("map %s: %s", line, strerror(errno));
		else if (!asked.fresh)
			keep(key, fd);
	}
	asked.fds[asked.map_count++] = fd;
}

static void name_to_id(const char *name)
{
	int id = btf_id(0, name);
	if (!id || asked.id_count == MANY)
		trouble("no kernel symbol %s", name);
	else
		asked.ids[asked.id_count++] = id;
}

/* Numbers of maps and symbols to descriptors and ids. */
static void link_insns(struct bpf_insn *insns, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct bpf_insn *insn = &insns[i];
		unsigned number = (unsigned)insn->imm;
		if (insn->code == (BPF_LD | BPF_IMM | BPF_DW)) {
			int by_number = insn->src_reg == 5 || insn->src_reg == 6;
			if (by_number && number < asked.map_count) {
				insn->imm = asked.fds[number];
				insn->src_reg -= 4;
			} else if (insn->src_reg == BPF_PSEUDO_BTF_ID && number < asked.id_count) {
				insn->imm = asked.ids[number];
			}
			i++;
		} else if (insn->code == (BPF_JMP | BPF_CALL) && insn->src_reg == 2 && number < asked.id_count) {
			insn->imm = asked.ids[number];
		}
	}
}

static int caps(unsigned long long drop)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];
	if (syscall(SYS_capget, &header, data))
		return -1;
	for (int i = 0; i < 2; i++)
		data[i].effective = data[i].permitted & ~(unsigned)(drop >> 32 * i);
	return (int)syscall(SYS_capset, &header, data);
}

static void print_hex(const unsigned char *bytes, size_t size)
{
	printf(size ? " " : " -");
	for (size_t i = 0; i < size; i++)
		printf("%02x", bytes[i]);
}

/* A program of XDP that passes every packet, or -1. */
static int passing(void)
{
	struct bpf_insn insns[] = { { BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 2 }, { BPF_JMP | BPF_EXIT, 0, 0, 0, 0 } };
	union bpf_attr attr = { .prog_type = BPF_PROG_TYPE_XDP, .insn_cnt = 2 };
	attr.insns = (uintptr_t)insns;
	attr.license = (uintptr_t)"GPL";
	return bpf(BPF_PROG_LOAD, &attr, sizeof attr);
}

/* A socket of TCP that is connected to a listening one, or one of UDP that shares its port. */
static int socket_of(int type)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, type, 0), one = 1;
	at.sin_port = htons(type == SOCK_STREAM ? TCP_PORT : GROUP_PORT);
	if (type == SOCK_STREAM ? connect(fd, (void *)&at, sizeof at) :
	    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) || bind(fd, (void *)&at, sizeof at))
		perror("guest: socket");
	return fd;
}

/* The descriptor that a word names, made once for each. */
static int named_fd(const char *word)
{
	char key[64];
	snprintf(key, sizeof key, "fd %s", word);
	if (!strcmp(word, "none"))
		return -1;
	if (!strcmp(word, "map"))
		return asked.map_count > 1 ? asked.fds[asked.map_count - 2] : -1;
	int fd = find(key);
	if (fd >= 0)
		return fd;
	if (!strcmp(word, "listening"))
		fd = listener;
	else if (!strcmp(word, "connected"))
		fd = socket_of(SOCK_STREAM);
	else if (!strcmp(word, "udp"))
		fd = receiver;
	else if (!strcmp(word, "grouped"))
		fd = socket_of(SOCK_DGRAM);
	else if (!strcmp(word, "prog"))
		fd = passing();
	else if (!strcmp(word, "other")) {
		union bpf_attr attr = { .map_type = BPF_MAP_TYPE_HASH, .key_size = 4, .value_size = 16, .max_entries = 1 };
		fd = bpf(BPF_MAP_CREATE, &attr, sizeof attr);
	} else if (!strcmp(word, "event")) {
		struct perf_event_attr event = { .type = PERF_TYPE_SOFTWARE, .size = sizeof event,
						 .config = PERF_COUNT_SW_BPF_OUTPUT, .sample_type = PERF_SAMPLE_RAW };
		fd = (int)syscall(SYS_perf_event_open, &event, -1, 0, -1, 0);
	} else if (!strcmp(word, "cgroup")) {
		if (mkdir("/group", 0755) || mount("none", "/group", "cgroup2", 0, NULL))
			perror("guest: cgroup");
		fd = open("/group", O_RDONLY);
	}
	if (fd < 0)
		perror(word);
	return keep(key, fd);
}

/* One operation on the last map. */
static void operate(char *line)
{
	static unsigned char out[1 << 16];
	char *op = strtok(line, " "), *key = strtok(NULL, " "), *value = strtok(NULL, " "), *flags = strtok(NULL, " ");
	union bpf_attr attr = { 0 };
	int command = -1;
	memset(out, 0, sizeof out);
	if (!op || !key || !value || !flags || !asked.map_count || asked.trouble[0]) {
		printf("O -1 %s\n", asked.trouble);
		return;
	}
	attr.map_fd = (unsigned)asked.fds[asked.map_count - 1];
	if (strcmp(key, "-")) {
		from_hex(key);
		attr.key = (uintptr_t)key;
	}
	/* The kernel refuses what an operation does not use. */
	if (strcmp(op, "delete"))
		attr.value = (uintptr_t)out;
	if (strcmp(op, "delete") && strcmp(op, "next"))
		attr.flags = strtoull(flags, NULL, 0);
	if (!strcmp(op, "update")) {
		command = BPF_MAP_UPDATE_ELEM;
		if (digit(value[0]) >= 0 && digit(value[1]) >= 0) {
			size_t size = from_hex(value);
			memcpy(out, value, size);
		} else {
			int fd = named_fd(value);
			memcpy(out, &fd, sizeof fd);
		}
	} else if (!strcmp(op, "lookup"))
		command = BPF_MAP_LOOKUP_ELEM;
	else if (!strcmp(op, "take"))
		command = BPF_MAP_LOOKUP_AND_DELETE_ELEM;
	else if (!strcmp(op, "delete") || !strcmp(op, "next"))
		command = op[0] == 'd' ? BPF_MAP_DELETE_ELEM : BPF_MAP_GET_NEXT_KEY;
	int error = bpf(command, &attr, sizeof attr) ? errno : 0;
	printf("O %d", error);
	unsigned size = command == BPF_MAP_GET_NEXT_KEY ? asked.key_size : asked.value_size;
	int gives = command != BPF_MAP_UPDATE_ELEM && command != BPF_MAP_DELETE_ELEM;
	print_hex(out, gives && !error ? size : 0);
	printf("\n");
}

static void print_log(void)
{
	size_t length = strnlen(log_text, LOG_SIZE);
	char *from = log_text + length;
	unsigned lines = 0;
	for (; from > log_text; from--)
		if (asked.lines && from[-1] == '\n' && from != log_text + length && ++lines == asked.lines)
			break;
	for (char *line = strtok(from, "\n"); line; line = strtok(NULL, "\n"))
		printf("L %s\n", line);
}

/* Runs a program once and prints what it left. */
static void run(int fd)
{
	static unsigned char packet[1 << 16], context[1024];
	union bpf_attr attr = { 0 };
	int has_packet = asked.packet[0] != '-', has_context = asked.context[0] != '-';
	memset(packet, 0, sizeof packet);
	memset(context, 0, sizeof context);
	attr.test.prog_fd = (unsigned)fd;
	/* These types know neither repetition nor a context that comes back. */
	int plain = asked.type == BPF_PROG_TYPE_RAW_TRACEPOINT || asked.type == BPF_PROG_TYPE_SYSCALL;
	attr.test.repeat = !plain;
	if (has_packet) {
		attr.test.data_size_in = (unsigned)from_hex(asked.packet);
		attr.test.data_in = (uintptr_t)asked.packet;
		attr.test.data_size_out = sizeof packet;
		attr.test.data_out = (uintptr_t)packet;
	}
	if (has_context) {
		attr.test.ctx_size_in = (unsigned)from_hex(asked.context);
		attr.test.ctx_in = (uintptr_t)asked.context;
		attr.test.ctx_size_out = plain ? 0 : sizeof context;
		attr.test.ctx_out = plain ? 0 : (uintptr_t)context;
	}
	int error = bpf(BPF_PROG_TEST_RUN, &attr, sizeof attr) ? errno : 0;
	printf("R %d %u", error, attr.test.retval);
	print_hex(packet, error || !has_packet ? 0 : attr.test.data_size_out);
	print_hex(context, error || !has_context ? 0 : attr.test.ctx_size_out);
	printf("\n");
}

static void ask(char *hex)
{
	size_t size = from_hex(hex), count = size / 8;
	union bpf_attr attr = { 0 };
	attr.prog_type = asked.type;
	attr.expected_attach_type = asked.attach;
	attr.prog_flags = asked.flags;
	attr.insns = (uintptr_t)hex;
	attr.insn_cnt = (unsigned)count;
	attr.license = (uintptr_t)asked.license;
	attr.log_level = asked.level;
	attr.log_buf = asked.level ? (uintptr_t)log_text : 0;
	attr.log_size = asked.level ? LOG_SIZE : 0;
	attr.attach_btf_id = asked.attach_id;
	if (asked.targets)
		attr.attach_prog_fd = (unsigned)kept;
	if (asked.btf >= 0 && asked.func_count) {
		attr.prog_btf_fd = (unsigned)asked.btf;
		attr.func_info = (uintptr_t)asked.funcs;
		attr.func_info_rec_size = 8;
		attr.func_info_cnt = asked.func_count;
	}
	if (asked.trouble[0]) {
		for (char *c = asked.trouble; *c; c++)
			*c = *c == '\n' ? ' ' : *c;
		printf("P %s -1\nL oracle: %s\n.\n", asked.name, asked.trouble);
		return;
	}
	link_insns((struct bpf_insn *)hex, count);
	log_text[0] = 0;
	if (asked.drop)
		caps(asked.drop);
	int fd = bpf(BPF_PROG_LOAD, &attr, sizeof attr), error = fd < 0 ? errno : 0;
	if (asked.drop)
		caps(0);
	printf("P %s %d\n", asked.name, error);
	print_log();
	if (fd >= 0 && asked.packet && asked.context)
		run(fd);
	printf(".\n");
	fflush(stdout);
	if (fd >= 0 && asked.keeps) {
		if (kept >= 0)
			close(kept);
		kept = fd;
	} else if (fd >= 0) {
		/* Programs are freed later, by a worker: let it keep up. */
		static unsigned loaded;
		close(fd);
		if (++loaded % 64 == 0)
			usleep(20000);
	}
}

static void set(const char *path, const char *value)
{
	FILE *file = fopen(path, "w");
	if (!file || fputs(value, file) < 0 || fclose(file))
		perror(path);
}

/* Packets may be forwarded, and cookies answer every SYN. Sockets that programs find: of TCP and UDP at 127.0.0.1 and ::1, the loopback device is up. */
static void open_sockets(void)
{
	set("/proc/sys/net/ipv4/ip_forward", "1");
	set("/proc/sys/net/ipv6/conf/all/forwarding", "1");
	set("/proc/sys/net/ipv4/tcp_syncookies", "2");
	struct ifreq device = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int any = socket(AF_INET, SOCK_DGRAM, 0);
	if (any < 0 || ioctl(any, SIOCSIFFLAGS, &device))
		perror("guest: lo");
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	for (int udp = 0; udp < 2; udp++) {
		int type = udp ? SOCK_DGRAM : SOCK_STREAM;
		four.sin_port = six.sin6_port = htons(udp ? UDP_PORT : TCP_PORT);
		int a = socket(AF_INET, type, 0), b = socket(AF_INET6, type, 0);
		if (bind(a, (void *)&four, sizeof four) || bind(b, (void *)&six, sizeof six) ||
		    (!udp && (listen(a, 8) || listen(b, 8))))
			perror("guest: sockets");
		*(udp ? &receiver : &listener) = a;
	}
}

int main(void)
{
	char *line = NULL, *insns = NULL;
	size_t room = 0;
	ssize_t length;
	int alone = getpid() == 1;
	if (alone && (mount("sysfs", "/sys", "sysfs", 0, NULL) || mount("devtmpfs", "/dev", "devtmpfs", 0, NULL) ||
		      mount("proc", "/proc", "proc", 0, NULL) || !freopen("/requests", "r", stdin) || !freopen("/dev/ttyS1", "w", stdout)))
		perror("guest");
	/* Until 5.11 maps and programs counted as locked memory. */
	struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	if (alone && setrlimit(RLIMIT_MEMLOCK, &unlimited))
		perror("guest");
	struct utsname system;
	if (alone && !uname(&system))
		printf("RELEASE %s\n", system.release);
	if (alone)
		open_sockets();
	log_text = or_die(malloc(LOG_SIZE));
	forget();
	while ((length = getline(&line, &room, stdin)) > 0) {
		if (line[length - 1] == '\n')
			line[--length] = 0;
		char *rest = length > 2 ? line + 2 : line + length;
		switch (line[0]) {
		case 'P': forget(); snprintf(asked.name, sizeof asked.name, "%s", rest); break;
		case 't': sscanf(rest, "%u %u %u", &asked.type, &asked.attach, &asked.flags); break;
		case 'l': snprintf(asked.license, sizeof asked.license, "%s", rest); break;
		case 'b': asked.attach_id = (unsigned)strtoul(rest, NULL, 0); break;
		case 'B': {
			char *name;
			unsigned kind = (unsigned)strtoul(rest, &name, 0);
			asked.attach_id = (unsigned)btf_id(kind, name + (*name == ' '));
			if (!asked.attach_id)
				trouble("no kernel type %s", rest);
			break;
		}
		case 'S': {
			char *member = strchr(rest, ' ');
			if (member)
				*member++ = 0;
			asked.attach_id = (unsigned)btf_id(BTF_KIND_STRUCT, rest);
			int number = member ? member_number((int)asked.attach_id, member) : -1;
			if (number < 0)
				trouble("no member %s of %s", member ? member : "", rest);
			asked.attach = (unsigned)number;
			break;
		}
		case 'T': add_btf(rest); break;
		case 'F': {
			size_t size = from_hex(rest);
			size = size > sizeof asked.funcs ? sizeof asked.funcs : size;
			memcpy(asked.funcs, rest, size);
			asked.func_count = (unsigned)size / 8;
			break;
		}
		case 'f': asked.fresh = 1; break;
		case 'o': operate(rest); break;
		case 'm': add_map(rest); break;
		case 'k': name_to_id(rest); break;
		case 'c': asked.drop = strtoull(rest, NULL, 16); break;
		case 'K': asked.keeps = 1; break;
		case 'A': asked.targets = 1; break;
		case 'v': sscanf(rest, "%u %u", &asked.level, &asked.lines); break;
		case 'r':
			free(asked.packet);
			asked.packet = or_die(strdup(rest));
			asked.context = strchr(asked.packet, ' ');
			if (asked.context)
				*asked.context++ = 0;
			break;
		case 'i': free(insns); insns = or_die(strdup(rest)); break;
		case '.':
			if (insns)
				ask(insns);
			free(insns);
			insns = NULL;
			break;
		default: trouble("what is this: %.40s", line);
		}
	}
	free(line);
	free(insns);
	if (alone) {
		printf("DONE\n");
		fflush(stdout);
		tcdrain(fileno(stdout));
		reboot(RB_AUTOBOOT);
	}
	return 0;
}
