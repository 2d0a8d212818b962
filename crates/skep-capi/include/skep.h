/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * skep: an eBPF runtime for Linux user space.
 *
 *   object file -> skep_object -> skep_module_load -> skep_module -> skep_program, skep_map
 *                                      ^
 *                                 skep_runtime
 *
 * RETURN VALUES. Functions that return int return SKEP_OK (0), or a negative number of enum skep_status that says what
 * kind of thing went wrong; skep_error_message then has the details, with the place and a remedy. Where a function
 * fails, the places for its results keep what they held, unless it says otherwise. A NULL where something is needed is
 * SKEP_E_ARGUMENT and does no harm.
 *
 * OWNERSHIP. What a function with `_new`, `_open`, `_parse` or `_load` in its name hands out is the caller's, to be
 * freed once by the `_free` of its type; freeing NULL does nothing. Handles are freed in any order: what is needed
 * longer is kept alive. Programs and maps belong to their module and are gone when it is freed. The library keeps no
 * pointer to the caller's memory when a function returns.
 *
 * THREADS. Any number of threads may use the same runtime, object, module, program and map at once, but for freeing,
 * which is the last use. A packet, like any buffer, is used by one thread at a time. A thread that has run a program
 * keeps one of the runtime's virtual CPUs until it ends, or calls skep_runtime_release_cpu.
 *
 * Not for signal handlers. A child process made by fork() may only call exec. The library must stay loaded as long as
 * there are handles, and threads that have run programs. Running out of small memory aborts the process, as the Rust
 * language has it.
 */
#ifndef SKEP_H
#define SKEP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version that this header is of; skep_version has the library's. */
#define SKEP_VERSION "0.1.0"

/* What functions return. Numbers never change their meaning; new ones may come. */
enum skep_status {
	SKEP_OK = 0,
	SKEP_E_ARGUMENT = -1,    /* an argument is NULL, of the wrong size, not UTF-8, or not what the callee takes */
	SKEP_E_READ = -2,        /* a file could not be read */
	SKEP_E_OBJECT = -3,      /* the bytes are no BPF object, or it contradicts itself */
	SKEP_E_REFUSED = -4,     /* the verifier refused a program; the message names instruction, line and reason */
	SKEP_E_UNSUPPORTED = -5, /* the object needs something that this library does not provide */
	SKEP_E_NOT_FOUND = -6,   /* there is no such program, map or key, or no key follows */
	SKEP_E_EXISTS = -7,      /* the key exists already */
	SKEP_E_FULL = -8,        /* the map holds all the elements that it may hold */
	SKEP_E_MEMORY = -9,      /* more memory than a limit allows, or than the system gives, executable or not */
	SKEP_E_BUSY = -10,       /* no virtual CPU is free, the thread is ending, or a signal handler asks for what its thread holds */
	SKEP_E_DENIED = -11,     /* the map is frozen, or its kind does not allow the change */
	SKEP_E_COMPILE = -12,    /* the compiler gave up on a verified program */
	SKEP_E_INTERNAL = -13    /* a defect of the library; what the call was given may only be freed */
};

/* What skep_map_update may do, with Linux's names and numbers. */
enum skep_update {
	SKEP_ANY = 0,     /* create the element or change it */
	SKEP_NOEXIST = 1, /* create it; SKEP_E_EXISTS where it exists */
	SKEP_EXIST = 2,   /* change it; SKEP_E_NOT_FOUND where it does not exist */
	SKEP_LOCK = 4     /* with one of these by |: in place, under the lock in the value */
};

/* Hardening, against an attacker who found another bug in the process. It costs a little time, and does nothing where the
 * processor or the system does not check. */
enum {
	SKEP_LANDING_PADS = 1,  /* programs begin with an instruction for indirect branches: BTI, ENDBR64 */
	SKEP_SIGNED_RETURNS = 2 /* aarch64: saved return addresses are signed, and checked before they are used */
};

typedef struct skep_runtime skep_runtime; /* code memory, virtual CPUs, limits: shared by all that is loaded into it */
typedef struct skep_object skep_object;   /* a parsed object file; nothing of it is trusted */
typedef struct skep_module skep_module;   /* a loaded object: its maps and its verified, compiled programs */
typedef struct skep_program skep_program; /* a program of a module */
typedef struct skep_map skep_map;         /* a map of a module */
typedef struct skep_packet skep_packet;   /* bytes with room to grow on both sides, and what is known besides */

/* Settings of a runtime. Set `size` to sizeof(skep_runtime_options) and all that you do not want to choose to 0,
 * which is the default everywhere: { .size = sizeof(skep_runtime_options), .cpus = 8 }. */
typedef struct skep_runtime_options {
	size_t size;
	/* Virtual CPUs: the number of threads that can run programs at once, and of values in an element of a per-CPU map.
	 * Default: 64, or twice the processors where that is more. */
	uint64_t cpus;
	/* The most bytes that one map may take. Default: 4 GiB. */
	uint64_t map_memory;
	/* The most bytes of executable memory, in packs of 2 MiB. Default: what the address range holds. */
	uint64_t code_memory;
	/* What code does beyond computing: a sum of SKEP_LANDING_PADS and SKEP_SIGNED_RETURNS. Default: nothing. */
	uint64_t hardening;
} skep_runtime_options;

/* Choices of a load, used like skep_runtime_options. */
typedef struct skep_load_options {
	size_t size;
	/* The one program to load. Default: all. */
	const char *program;
	/* For programs of type `raw`: the length in bytes of the buffer they will be given. They are verified for this
	 * length and run on no other. Default: 0. */
	uint64_t buffer_len;
} skep_load_options;

/* The library's version, such as "0.1.0". The string is the library's and never freed. Any thread, any time. */
const char *skep_version(void);

/* The words for the last call of the calling thread that failed; "" where none has. Calls that succeed leave them.
 * The string is the library's: it is good until the next call of the same thread fails, or the thread ends. Each
 * thread has words of its own. */
const char *skep_error_message(void);

/* Makes a runtime. `options` may be NULL and is not kept. `*runtime` is the caller's, to be freed by
 * skep_runtime_free. Any thread. Fails with SKEP_E_ARGUMENT, SKEP_E_MEMORY. */
int skep_runtime_new(const skep_runtime_options *options, skep_runtime **runtime);

/* Gives up the calling thread's virtual CPU, which it otherwise keeps from its first run until it ends, for threads
 * that will be idle for long; the next run takes one again. Returns 1, or 0 where the thread has none, or `runtime`
 * is NULL. Any thread, for itself. */
int skep_runtime_release_cpu(const skep_runtime *runtime);

/* Frees a runtime. Modules loaded into it stay usable. NULL does nothing. Any thread; the last use
 * of the handle. */
void skep_runtime_free(skep_runtime *runtime);

/* Reads and parses the object file at `path`, which is not kept. `*object` is the caller's, to be freed by
 * skep_object_free. Any thread. Fails with SKEP_E_ARGUMENT, SKEP_E_READ, SKEP_E_OBJECT. */
int skep_object_open(const char *path, skep_object **object);

/* Parses the `len` bytes of an object file at `data`, which stay the caller's and may be freed afterwards.
 * `*object` is the caller's, to be freed by skep_object_free. Any thread. Fails with SKEP_E_ARGUMENT,
 * SKEP_E_OBJECT. */
int skep_object_parse(const void *data, size_t len, skep_object **object);

/* Frees an object. Modules made from it stay usable. NULL does nothing. Any thread; the last use of the handle. */
void skep_object_free(skep_object *object);

/* Creates the object's maps, verifies and compiles its programs; where one step fails, nothing stays loaded.
 * `options` may be NULL and is not kept. `*module` is the caller's, to be freed by skep_module_free; it can be
 * loaded from the same object any number of times, each time with maps of its own. Any threads, also with the same
 * runtime and object. Fails with any number but SKEP_E_READ and SKEP_E_BUSY; with SKEP_E_REFUSED where a program is
 * not safe. */
int skep_module_load(const skep_runtime *runtime, const skep_object *object, const skep_load_options *options,
		     skep_module **module);

/* Finds a program by the name of its function in C. `*program` belongs to the module and is good until that is
 * freed. `name` is not kept. Any threads. Fails with SKEP_E_ARGUMENT, SKEP_E_NOT_FOUND. */
int skep_module_program(const skep_module *module, const char *name, const skep_program **program);

/* Finds a map by its name in C. `*map` belongs to the module and is good until that is freed. `name` is not kept.
 * Any threads. Fails with SKEP_E_ARGUMENT, SKEP_E_NOT_FOUND. */
int skep_module_map(const skep_module *module, const char *name, const skep_map **map);

/* Frees a module with its programs and maps. NULL does nothing. Any thread; the last use of the module, of its
 * programs and of its maps: no thread may be running one. */
void skep_module_free(skep_module *module);

/* Makes a packet with a copy of the `len` bytes at `data`, a frame from its link-layer header on. `*packet` is the
 * caller's, to be freed by skep_packet_free, and can be used for any number of packets. Any thread. Fails with
 * SKEP_E_ARGUMENT. */
int skep_packet_new(const void *data, size_t len, skep_packet **packet);

/* Copies other bytes into the packet, in the place of the old ones, and restores the room on both sides. They may
 * be bytes of the packet itself. One thread at a time. Fails with SKEP_E_ARGUMENT. */
int skep_packet_set(skep_packet *packet, const void *data, size_t len);

/* The packet's bytes, as the last program left them; their number in `*len`, unless that is NULL. They are the
 * packet's, and good until the next skep_packet_set, skep_program_run or skep_packet_free of it. For a packet that
 * is NULL: NULL and 0. Any threads, while none changes the packet. */
const uint8_t *skep_packet_bytes(const skep_packet *packet, size_t *len);

/* Frees a packet. NULL does nothing. Any thread; the last use of the handle. */
void skep_packet_free(skep_packet *packet);

/* Runs the program on the packet, which it may change. `*verdict` is what it returned: XDP_PASS, TC_ACT_OK and the
 * like of <linux/bpf.h> and <linux/pkt_cls.h>. What it prints with bpf_printk goes to standard error. Nothing
 * changes hands. Any threads, each with a packet of its own. Fails with SKEP_E_ARGUMENT (also for programs that
 * take a buffer), SKEP_E_BUSY. */
int skep_program_run(const skep_program *program, skep_packet *packet, uint32_t *verdict);

/* Runs a program of type `raw` on the `len` initialised bytes at `buffer`, which it may change and which stay the
 * caller's; `result` must lie elsewhere. `len` must be what skep_load_options.buffer_len was. Any threads, each
 * with a buffer of its own. Fails with SKEP_E_ARGUMENT (also for programs that take a packet), SKEP_E_BUSY. */
int skep_program_run_raw(const skep_program *program, void *buffer, size_t len, uint64_t *result);

/* Bytes in a key of the map; 0 for NULL. Any threads. */
size_t skep_map_key_size(const skep_map *map);

/* Bytes in a value of the map as the host reads and writes it: for per-CPU kinds the values of all virtual CPUs in
 * order, each padded with zeroes to a multiple of 8. 0 for NULL. Any threads. */
size_t skep_map_value_size(const skep_map *map);

/* Copies the value of a key to `value`; of the longest prefix in a trie. `key_size` and `value_size` must be the
 * map's, and the two must not overlap; both stay the caller's. Where there is no such key it fails with
 * SKEP_E_NOT_FOUND and the bytes at `value` are unspecified. Any threads, while programs run. Fails with
 * SKEP_E_ARGUMENT too. */
int skep_map_lookup(const skep_map *map, const void *key, size_t key_size, void *value, size_t value_size);

/* Sets the value of a key to a copy of `value`, as `flags` of enum skep_update say; for per-CPU kinds, of all
 * virtual CPUs. `key_size` and `value_size` must be the map's; both stay the caller's. Any threads, while programs
 * run. Fails with SKEP_E_ARGUMENT, SKEP_E_EXISTS, SKEP_E_NOT_FOUND, SKEP_E_FULL, SKEP_E_MEMORY, SKEP_E_DENIED. */
int skep_map_update(const skep_map *map, const void *key, size_t key_size, const void *value, size_t value_size,
		    uint64_t flags);

/* Removes a key. `key_size` must be the map's; the key stays the caller's. Any threads, while programs run. Fails
 * with SKEP_E_ARGUMENT, SKEP_E_NOT_FOUND, SKEP_E_DENIED (from arrays, and maps of constants). */
int skep_map_delete(const skep_map *map, const void *key, size_t key_size);

/* Copies the key that follows `key` in the map's own order to `next`; the first one where `key` is NULL, or is not
 * in the map (any more), so a walk over a map that others change may start over. `key_size` must be the map's; both
 * stay the caller's and may be the same place. Any threads, while programs run. At the end it fails with
 * SKEP_E_NOT_FOUND; with SKEP_E_ARGUMENT too. */
int skep_map_next_key(const skep_map *map, const void *key, void *next, size_t key_size);

#ifdef __cplusplus
}
#endif

#endif
