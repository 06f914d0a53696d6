// Steps the wall clock of a process: LD_PRELOAD it. The seconds of the file STEPPED_CLOCK_FILE, a
// native 64-bit integer, are added to the real-time clocks whenever they are read.
//
// The vDSO is patched, because Rust programs may call it without libc. x86-64 only.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *step_s;

static long kernel_time(long clock, struct timespec *time) {
    long status;
    __asm__ volatile("syscall"
                     : "=a"(status)
                     : "a"(SYS_clock_gettime), "D"(clock), "S"(time)
                     : "rcx", "r11", "memory");
    return status;
}

static int stepped_time(clockid_t clock, struct timespec *time) {
    long status = kernel_time(clock, time);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        time->tv_sec += *step_s;
    return (int)status;
}

// The kernel does not split the mapping: all of it gets the permission.
static void allow_writes_to_vdso(void) {
    char line[256];
    unsigned long start = 0, end = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps)) {
        if (strstr(line, "[vdso]")) sscanf(line, "%lx-%lx", &start, &end);
    }
    if (maps) fclose(maps);
    if (mprotect((void *)start, end - start, PROT_READ | PROT_WRITE | PROT_EXEC)) abort();
}

__attribute__((constructor)) static void patch(void) {
    const char *path = getenv("STEPPED_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) abort();
    void *mapped = mmap(NULL, sizeof *step_s, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) abort();
    close(file);
    step_s = mapped;
    void *vdso = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
    unsigned char *entry = vdso ? dlsym(vdso, "__vdso_clock_gettime") : NULL;
    if (!entry) abort();
    // movabs $stepped_time, %rax; jmp *%rax
    unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    void *target = (void *)stepped_time;
    memcpy(jump + 2, &target, sizeof target);
    allow_writes_to_vdso();
    memcpy(entry, jump, sizeof jump);
}
