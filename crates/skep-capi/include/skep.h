/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * skep: an eBPF runtime for Linux user space.
 *
 *   object file -> skep_object -> skep_module_load -> skep_module -> skep_program, skep_map
 *                                      ^
 *                                 skep_runtime
 *
 * RETURN VALUES. Functions that return int return SKEP_OK (0), or a negative number of enum skep_status, the class of
 * the error; skep_error_message then has the details, with the place and a remedy. A function that fails leaves its
 * results unchanged, unless its comment says otherwise. A required argument that is NULL is SKEP_E_ARGUMENT and has no
 * other effect.
 *
 * OWNERSHIP. A handle from a function with `_new`, `_open`, `_parse` or `_load` in its name belongs to the caller, who
 * frees it once with the `_free` of its type; freeing NULL does nothing. Handles may be freed in any order: the library
 * keeps alive what other handles still need. Programs and maps belong to their module and are freed with it. The
 * library keeps no pointer to the caller's memory when a function returns.
 *
 * THREADS. Any number of threads may use the same runtime, object, module, program and map at once, except to free
 * it, which must be the last use. A packet, like any buffer, is used by one thread at a time. A thread that has run a
 * program keeps one of the runtime's virtual CPUs until it ends, or calls skep_runtime_release_cpu. Three quarters of
 * the virtual CPUs can be kept; threads that find none share the others, and wait for one where all are in use.
 *
 * Not for signal handlers. A child process made by fork() may only call exec. The library must stay loaded as long as
 * there are handles, and threads that have run programs. Failure to allocate memory for the library's own data aborts
 * the process, as is usual in Rust.
 */
#ifndef SKEP_H
#define SKEP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header; skep_version returns the library's. */
#define SKEP_VERSION "0.1.0"

/* Results of functions. Numbers never change their meaning; new ones may be added. */
enum skep_status {
	SKEP_OK = 0,
	SKEP_E_ARGUMENT = -1,    /* an argument is NULL, has the wrong size, is not UTF-8, or is not accepted by the callee */
	SKEP_E_READ = -2,        /* a file could not be read */
	SKEP_E_OBJECT = -3,      /* the bytes are not a BPF object, or the object contradicts itself */
	SKEP_E_REFUSED = -4,     /* the verifier refused a program; the message names instruction, line and reason */
	SKEP_E_UNSUPPORTED = -5, /* the object needs something that this library does not provide */
	SKEP_E_NOT_FOUND = -6,   /* no such program, map or key, or no further key */
	SKEP_E_EXISTS = -7,      /* the key already exists */
	SKEP_E_FULL = -8,        /* the map already holds its maximum number of elements */
	SKEP_E_MEMORY = -9,      /* more memory is needed than a limit allows or the system provides, executable or not */
	SKEP_E_BUSY = -10,       /* no free virtual CPU, an ending thread, another consumer, or a signal handler that needs its
	                            thread's lock */
	SKEP_E_DENIED = -11,     /* the map is frozen, its kind does not allow the change, or the variable is a constant */
	SKEP_E_COMPILE = -12,    /* the compiler failed on a verified program */
	SKEP_E_INTERNAL = -13    /* a defect of the library; the arguments of the call may only be freed afterwards */
};

/* Flags of skep_map_update, with Linux's names and numbers. */
enum skep_update {
	SKEP_ANY = 0,     /* create or change the element */
	SKEP_NOEXIST = 1, /* create it; SKEP_E_EXISTS if it exists */
	SKEP_EXIST = 2,   /* change it; SKEP_E_NOT_FOUND if it does not exist */
	SKEP_LOCK = 4     /* combined with one of these by |: in place, under the lock in the value */
};

/* Hardening, against an attacker who exploits another bug in the process. It costs a little time, and has no effect if
 * the processor or the system does not check. */
enum {
	SKEP_LANDING_PADS = 1,  /* programs begin with an instruction for indirect branches: BTI, ENDBR64 */
	SKEP_SIGNED_RETURNS = 2 /* aarch64: saved return addresses are signed, and checked before they are used */
};

typedef struct skep_runtime skep_runtime; /* code memory, virtual CPUs, limits: shared by all modules loaded into it */
typedef struct skep_object skep_object;   /* a parsed object file; its content is untrusted */
typedef struct skep_module skep_module;   /* a loaded object: its maps and its verified, compiled programs */
typedef struct skep_program skep_program; /* a program of a module */
typedef struct skep_map skep_map;         /* a map of a module */
typedef struct skep_ringbuf skep_ringbuf; /* the consumer of a map's records */
typedef struct skep_packet skep_packet;   /* bytes with room to grow on both sides, and their metadata */

/* Settings of a runtime. Set `size` to sizeof(skep_runtime_options). 0 means the default in every other field:
 * { .size = sizeof(skep_runtime_options), .cpus = 8 }. */
typedef struct skep_runtime_options {
	size_t size;
	/* Virtual CPUs: the number of threads that can run programs at once, and of values in an element of a per-CPU map.
	 * Default: 64, or twice the number of processors if that is more. */
	uint64_t cpus;
	/* Maximum size of one map in bytes. Default: 4 GiB. */
	uint64_t map_memory;
	/* Maximum executable memory in bytes, in packs of 2 MiB. Default: the size of the address range. */
	uint64_t code_memory;
	/* Hardening of the generated code: a sum of SKEP_LANDING_PADS and SKEP_SIGNED_RETURNS. Default: none. */
	uint64_t hardening;
} skep_runtime_options;

/* Options of a load, used like skep_runtime_options. */
typedef struct skep_load_options {
	size_t size;
	/* The only program to load. Default: all. */
	const char *program;
	/* For programs of type `raw`: the length of their buffer in bytes. They are verified for this
	 * length and run on no other. Default: 0. */
	uint64_t buffer_len;
} skep_load_options;

/* The library's version, such as "0.1.0". The string is static. Any thread, any time. */
const char *skep_version(void);

/* The message of the calling thread's last failed call; "" if none has failed. Calls that succeed do not change it.
 * The string belongs to the library and is valid until the next call of the same thread fails, or the thread ends. */
const char *skep_error_message(void);

/* Creates a runtime. `options` may be NULL and is not kept. The caller frees `*runtime` with
 * skep_runtime_free. Any thread. Fails with SKEP_E_ARGUMENT, SKEP_E_MEMORY. */
int skep_runtime_new(const skep_runtime_options *options, skep_runtime **runtime);

/* Releases the virtual CPU that the calling thread keeps, if it has one, which it otherwise does from its first run
 * until it ends. Call it in threads that will be idle for long; the next run takes a virtual CPU again. Returns 1, or
 * 0 if the thread has none or `runtime` is NULL. Any thread, for itself. */
int skep_runtime_release_cpu(const skep_runtime *runtime);

/* Frees a runtime. Modules loaded into it stay usable. NULL does nothing. Any thread; the last use of the handle. */
void skep_runtime_free(skep_runtime *runtime);

/* Reads and parses the object file at `path`, which is not kept. The caller frees `*object` with
 * skep_object_free. Any thread. Fails with SKEP_E_ARGUMENT, SKEP_E_READ, SKEP_E_OBJECT. */
int skep_object_open(const char *path, skep_object **object);

/* Parses the `len` bytes of an object file at `data`, which may be freed afterwards. The caller frees
 * `*object` with skep_object_free. Any thread. Fails with SKEP_E_ARGUMENT,
 * SKEP_E_OBJECT. */
int skep_object_parse(const void *data, size_t len, skep_object **object);

/* Frees an object. Modules made from it stay usable. NULL does nothing. Any thread; the last use of the handle. */
void skep_object_free(skep_object *object);

/* Creates the object's maps, verifies and compiles its programs; if one step fails, nothing stays loaded.
 * `options` may be NULL and is not kept. The caller frees `*module` with skep_module_free. An object can be loaded
 * any number of times, each time with its own maps. Any threads, also with the same
 * runtime and object. Fails with any number but SKEP_E_READ and SKEP_E_BUSY; with SKEP_E_REFUSED if a program is
 * not safe. */
int skep_module_load(const skep_runtime *runtime, const skep_object *object, const skep_load_options *options,
		     skep_module **module);

/* Finds a program by the name of its function in C. `*program` belongs to the module and is valid until that is
 * freed. `name` is not kept. Any threads. Fails with SKEP_E_ARGUMENT, SKEP_E_NOT_FOUND. */
int skep_module_program(const skep_module *module, const char *name, const skep_program **program);

/* Finds a map by its name in C. `*map` belongs to the module and is valid until that is freed. `name` is not kept.
 * Any threads. Fails with SKEP_E_ARGUMENT, SKEP_E_NOT_FOUND. */
int skep_module_map(const skep_module *module, const char *name, const skep_map **map);

/* Copies the bytes of a global variable to `value`; `size` must be the variable's. Aligned pieces of 8, 4, 2 and 1
 * bytes are each from one moment. Any threads, while programs run. Fails with SKEP_E_ARGUMENT, SKEP_E_NOT_FOUND. */
int skep_module_variable(const skep_module *module, const char *name, void *value, size_t size);

/* Sets a global variable and no other byte; `size` must be the variable's. Aligned pieces of 8, 4, 2 and 1 bytes
 * change at once. Any threads, while programs run. Fails with SKEP_E_ARGUMENT, SKEP_E_NOT_FOUND, and with
 * SKEP_E_DENIED for constants, for whose values the programs were verified. */
int skep_module_set_variable(const skep_module *module, const char *name, const void *value, size_t size);

/* Frees a module with its programs and maps. NULL does nothing. Any thread; the last use of the module, of its
 * programs and of its maps: no thread may be running one. */
void skep_module_free(skep_module *module);

/* Creates a packet with a copy of the `len` bytes at `data`: a frame, beginning with its link-layer header. The caller
 * frees `*packet` with skep_packet_free; it can be reused for any number of frames. Any thread. Fails with
 * SKEP_E_ARGUMENT. */
int skep_packet_new(const void *data, size_t len, skep_packet **packet);

/* Replaces the packet's bytes by a copy of others and restores the room on both sides. The new bytes may be part of
 * the packet itself. One thread at a time. Fails with SKEP_E_ARGUMENT. */
int skep_packet_set(skep_packet *packet, const void *data, size_t len);

/* Returns the packet's bytes as the last program left them, and stores their number in `*len` unless `len` is NULL.
 * They belong to the packet and are valid until its next skep_packet_set, skep_program_run or skep_packet_free. For a
 * NULL packet: NULL and 0. Any threads, while none changes the packet. */
const uint8_t *skep_packet_bytes(const skep_packet *packet, size_t *len);

/* Frees a packet. NULL does nothing. Any thread; the last use of the handle. */
void skep_packet_free(skep_packet *packet);

/* Runs the program on the packet, which it may change. `*verdict` is its result: XDP_PASS, TC_ACT_OK or another
 * value of <linux/bpf.h> and <linux/pkt_cls.h>. Output of bpf_printk goes to standard error. Ownership does not
 * change. Any threads, each with its own packet. Fails with SKEP_E_ARGUMENT (also for programs that
 * take a buffer), SKEP_E_BUSY. */
int skep_program_run(const skep_program *program, skep_packet *packet, uint32_t *verdict);

/* Runs a program of type `raw` on the `len` initialised bytes at `buffer`, which it may change;
 * `result` must not overlap them. `len` must equal skep_load_options.buffer_len. Any threads, each with its own
 * buffer. Fails with SKEP_E_ARGUMENT (also for programs that take a packet), SKEP_E_BUSY. */
int skep_program_run_raw(const skep_program *program, void *buffer, size_t len, uint64_t *result);

/* Size of a key of the map in bytes; 0 for NULL. Any threads. */
size_t skep_map_key_size(const skep_map *map);

/* Size of a value of the map in bytes, as the host reads and writes it: for per-CPU kinds the values of all virtual
 * CPUs in order, each padded with zeroes to a multiple of 8. 0 for NULL. Any threads. */
size_t skep_map_value_size(const skep_map *map);

/* Copies the value of a key to `value`; in a trie, the value of the longest matching prefix. `key_size` and
 * `value_size` must be the map's, and the two must not overlap. Any threads, while programs run. Fails with
 * SKEP_E_ARGUMENT, and with SKEP_E_NOT_FOUND if there is no such key; the bytes at `value` are then unspecified. */
int skep_map_lookup(const skep_map *map, const void *key, size_t key_size, void *value, size_t value_size);

/* Sets the value of a key to a copy of `value`, according to `flags` (enum skep_update); for per-CPU kinds,
 * of all virtual CPUs. `key_size` and `value_size` must be the map's. Any threads, while programs run.
 * Fails with SKEP_E_ARGUMENT, SKEP_E_EXISTS, SKEP_E_NOT_FOUND, SKEP_E_FULL, SKEP_E_MEMORY, SKEP_E_DENIED. */
int skep_map_update(const skep_map *map, const void *key, size_t key_size, const void *value, size_t value_size,
		    uint64_t flags);

/* Removes a key. `key_size` must be the map's. Any threads, while programs run. Fails with SKEP_E_ARGUMENT,
 * SKEP_E_NOT_FOUND, SKEP_E_DENIED (arrays and frozen maps). */
int skep_map_delete(const skep_map *map, const void *key, size_t key_size);

/* Copies the key that follows `key` in the map's own order to `next`; the first one if `key` is NULL or not in the map
 * (any more), so a walk over a map that other threads change may start over. `key_size` must be the map's; `key` and
 * `next` may be the same place. Any threads, while programs run. Fails with SKEP_E_ARGUMENT, and with SKEP_E_NOT_FOUND
 * at the end. */
int skep_map_next_key(const skep_map *map, const void *key, void *next, size_t key_size);

/* Receives a record: the `context` given to skep_ringbuf_poll, the virtual CPU (0 for ring buffers), and `size` bytes
 * at a multiple of 8, valid during the call. 0 goes on to the next record; any other result ends skep_ringbuf_poll. It
 * may call the library, except for this skep_ringbuf, and must return. */
typedef int (*skep_record_fn)(void *context, uint32_t cpu, const void *record, size_t size);

/* Becomes the only consumer of a ring buffer, or of an array of perf events; of the latter with room for `perf_bytes`
 * bytes of each virtual CPU. The map stays as long as its consumer. The caller frees `*ringbuf` with
 * skep_ringbuf_free. Any thread. Fails with SKEP_E_ARGUMENT (also for other kinds), SKEP_E_BUSY (there is a consumer,
 * or no descriptor), SKEP_E_MEMORY. */
int skep_ringbuf_new(const skep_map *map, size_t perf_bytes, skep_ringbuf **ringbuf);

/* Returns a descriptor for poll(2) and epoll(7), by level or edge, that is readable when there are records. Then call
 * skep_ringbuf_poll with a timeout of 0, until it returns 0. It belongs to the library: do not read, write or close
 * it. -1 for NULL. Any thread. */
int skep_ringbuf_fd(const skep_ringbuf *ringbuf);

/* Waits until there is a record, at most `timeout_ms` milliseconds (negative: without a limit), and calls `callback`
 * with each record that is there, in order. Returns how many it was, 0 after the timeout. One thread at a time. Fails
 * with SKEP_E_ARGUMENT. */
int skep_ringbuf_poll(skep_ringbuf *ringbuf, int timeout_ms, skep_record_fn callback, void *context);

/* Returns how many samples of perf events found no room since the last call; 0 for ring buffers and for NULL. One
 * thread at a time. */
uint64_t skep_ringbuf_lost(skep_ringbuf *ringbuf);

/* Ends the consumption. NULL does nothing. Any thread; the last use of the handle. */
void skep_ringbuf_free(skep_ringbuf *ringbuf);

#ifdef __cplusplus
}
#endif

#endif
