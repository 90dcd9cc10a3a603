/* A libnvidia-ml.so.1 without a GPU, driven by a JSON file.
 *
 * FAKE_NVML_STATE names the file. It is read again whenever it changes; a torn file keeps the old view. FAKE_NVML_TRACE,
 * if set, names a file that gets one line "pid call gpu" per call. Layouts and names are those the public bindings use.
 *
 * State: {"init_error": code, "driver_version": s, "defaults": {...}, "devices": [{...}], "events": [{...}]}
 * Device (each key also in "defaults"): uuid name bus_id absent lost lost_on_wait mem_total mem_used util util_mem
 *   temperature power recovery_action ecc_dram ecc_sram remap_correctable remap_uncorrectable remap_pending remap_failed
 *   event_types errors{call|"*": code} hang{call|"*": seconds} hang_dstate exit{call: status}
 *   A key that is null makes its call NOT_SUPPORTED. `errors`, `hang` and `exit` may also stand at the top, for calls
 *   without a device. A hang ends early when the file no longer asks for it (not in D state).
 * Event: {"seq": n, "gpu": i, "type": 8, "data": xid}; delivered to sets made before it was written. */

#define _GNU_SOURCE
#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10, LOST = 15 };
enum { MOST_GPUS = 64 };
#define EXPORT __attribute__((visibility("default")))

/* ── JSON ─────────────────────────────────────────────────────────────────────────────────────────────────────── */

typedef struct Json {
    enum { NUL, BOOL, NUM, STR, LIST, MAP } kind;
    double num;
    char *str, *key;
    struct Json *first, *next;
} Json;

static Json *parse(const char **at);

static void blank(const char **at) {
    while (isspace((unsigned char)**at)) (*at)++;
}

static char *parse_string(const char **at) {
    const char *from = ++*at;
    char *text = malloc(strlen(from) + 1), *to = text;
    while (**at && **at != '"') {
        if (**at == '\\') (*at)++;
        *to++ = *(*at)++;
    }
    *to = 0;
    if (**at != '"') return NULL;
    (*at)++;
    return text;
}

static Json *parse_children(const char **at, Json *parent, char close) {
    Json **tail = &parent->first;
    (*at)++;
    for (blank(at); **at != close; blank(at)) {
        char *key = NULL;
        if (close == '}') {
            if (**at != '"' || !(key = parse_string(at))) return NULL;
            blank(at);
            if (*(*at)++ != ':') return NULL;
        }
        Json *child = parse(at);
        if (!child) return NULL;
        child->key = key;
        *tail = child;
        tail = &child->next;
        blank(at);
        if (**at == ',') (*at)++;
        else if (**at != close) return NULL;
    }
    (*at)++;
    return parent;
}

static Json *parse(const char **at) {
    Json *json = calloc(1, sizeof *json);
    blank(at);
    switch (**at) {
    case '{': json->kind = MAP; return parse_children(at, json, '}');
    case '[': json->kind = LIST; return parse_children(at, json, ']');
    case '"': json->kind = STR; return (json->str = parse_string(at)) ? json : NULL;
    case 'n': *at += 4; return json;
    case 't': json->kind = BOOL; json->num = 1; *at += 4; return json;
    case 'f': json->kind = BOOL; *at += 5; return json;
    default: {
        char *end;
        json->kind = NUM;
        json->num = strtod(*at, &end);
        if (end == *at) return NULL;
        *at = end;
        return json;
    }
    }
}

static Json *member(const Json *map, const char *key) {
    for (Json *child = map ? map->first : NULL; child; child = child->next)
        if (child->key && !strcmp(child->key, key)) return child;
    return NULL;
}

static int truth(const Json *json) { return json && json->num != 0; }

/* ── the state ────────────────────────────────────────────────────────────────────────────────────────────────── */

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static Json *state;               /* old trees are never freed: a hanging call may still read one */
static struct timespec read_at;
static off_t read_size = -1;
static ino_t read_inode;
static int initialized;

static Json *load(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) return NULL;
    char *text = calloc(1, 1 << 20);
    size_t size = fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    const char *at = text;
    Json *json = size ? parse(&at) : NULL;
    if (json) blank(&at);
    Json *whole = json && json->kind == MAP && !*at ? json : NULL;
    free(text);
    return whole;
}

static Json *current(void) {
    const char *path = getenv("FAKE_NVML_STATE");
    struct stat now;
    pthread_mutex_lock(&guard);
    if (path && !stat(path, &now) &&
        (now.st_size != read_size || now.st_ino != read_inode || now.st_mtim.tv_sec != read_at.tv_sec ||
         now.st_mtim.tv_nsec != read_at.tv_nsec)) {
        Json *fresh = load(path);
        if (fresh) {
            state = fresh;
            read_at = now.st_mtim, read_size = now.st_size, read_inode = now.st_ino;
        }
    }
    Json *json = state;
    pthread_mutex_unlock(&guard);
    return json;
}

static Json *device_at(Json *root, int slot) {
    Json *list = member(root, "devices"), *device = list ? list->first : NULL;
    for (; device && slot > 0; slot--) device = device->next;
    return device;
}

static Json *value(Json *root, Json *device, const char *key) {
    Json *own = member(device, key);
    return own ? own : member(member(root, "defaults"), key);
}

/* ── what every call goes through ─────────────────────────────────────────────────────────────────────────────── */

static int slots[MOST_GPUS]; /* a handle is the address of a slot: it stays with the card when indices move */

static int slot_of(const void *handle) {
    const int *at = handle;
    return at >= slots && at < slots + MOST_GPUS ? (int)(at - slots) : -1;
}

static void trace(const char *call, int slot) {
    const char *path = getenv("FAKE_NVML_TRACE");
    if (!path) return;
    char line[200];
    int size = snprintf(line, sizeof line, "%d %s %d\n", (int)getpid(), call, slot);
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (file >= 0) {
        if (write(file, line, size) < 0) perror("trace");
        close(file);
    }
}

static Json *of_call(Json *holder, const char *key, const char *call) {
    Json *map = member(holder, key), *found = member(map, call);
    return found ? found : member(map, "*");
}

static Json *holder_of(Json *root, int slot) { return slot < 0 ? root : device_at(root, slot); }

static void sleep_in_kernel(double seconds) {
    /* the thread that calls vfork waits for its child in D state */
    struct timespec pause = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    pid_t child = vfork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        nanosleep(&pause, NULL);
        _exit(0);
    }
}

static void maybe_hang(int slot, const char *call) {
    Json *root = current(), *holder = holder_of(root, slot), *asked = of_call(holder, "hang", call);
    if (!asked) return;
    if (truth(member(holder, "hang_dstate"))) {
        sleep_in_kernel(asked->num);
        return;
    }
    struct timespec slice = {0, 10000000};
    for (double left = asked->num; left > 0; left -= 0.01) {
        nanosleep(&slice, NULL);
        if (!of_call(holder_of(current(), slot), "hang", call)) return;
    }
}

/* Trace, hang, exit, fail. `slot` -1: a call without a device. */
static int enter(const char *call, int slot) {
    trace(call, slot);
    maybe_hang(slot, call);
    Json *root = current(), *holder = holder_of(root, slot), *found;
    if ((found = of_call(holder, "exit", call))) exit((int)found->num);
    if (slot >= 0) {
        if (!initialized) return UNINITIALIZED;
        if (!holder || truth(member(holder, "lost")) || truth(member(holder, "absent"))) return LOST;
    }
    if ((found = of_call(holder, "errors", call))) return (int)found->num;
    return OK;
}

static int number(const char *call, const void *handle, const char *key, double otherwise, double *out) {
    int slot = slot_of(handle), code = slot < 0 ? INVALID_ARGUMENT : enter(call, slot);
    if (code) return code;
    Json *root = current(), *found = value(root, device_at(root, slot), key);
    if (found && found->kind == NUL) return NOT_SUPPORTED;
    *out = found ? found->num : otherwise;
    return OK;
}

static int text(const char *call, const void *handle, const char *key, const char *otherwise, char *out, unsigned size) {
    int slot = slot_of(handle), code = slot < 0 ? INVALID_ARGUMENT : enter(call, slot);
    if (code) return code;
    Json *root = current(), *found = value(root, device_at(root, slot), key);
    char made[96];
    snprintf(made, sizeof made, otherwise, slot);
    snprintf(out, size, "%s", found && found->kind == STR ? found->str : made);
    return OK;
}

/* ── exports: library and devices ─────────────────────────────────────────────────────────────────────────────── */

static int init(const char *call) {
    int code = enter(call, -1);
    Json *error = member(current(), "init_error");
    if (!code && error) code = (int)error->num;
    if (!code) initialized = 1;
    return code;
}

EXPORT int nvmlInitWithFlags(unsigned flags) { return (void)flags, init("nvmlInit"); }
EXPORT int nvmlInit_v2(void) { return init("nvmlInit"); }
EXPORT int nvmlShutdown(void) { return enter("nvmlShutdown", -1); }
EXPORT const char *nvmlErrorString(int code) { return code ? "fake error" : "success"; }

EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    Json *version = member(current(), "driver_version");
    snprintf(out, size, "%s", version && version->kind == STR ? version->str : "575.57.08");
    return enter("nvmlSystemGetDriverVersion", -1);
}
EXPORT int nvmlSystemGetNVMLVersion(char *out, unsigned size) {
    snprintf(out, size, "12.575.57.08");
    return enter("nvmlSystemGetNVMLVersion", -1);
}
EXPORT int nvmlSystemGetCudaDriverVersion(int *out) { return *out = 12090, enter("nvmlSystemGetCudaDriverVersion", -1); }
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *out) { return nvmlSystemGetCudaDriverVersion(out); }

EXPORT int nvmlDeviceGetCount_v2(unsigned *out) {
    int code = enter("nvmlDeviceGetCount", -1);
    if (code) return code;
    if (!initialized) return UNINITIALIZED;
    *out = 0;
    Json *list = member(current(), "devices");
    for (Json *device = list ? list->first : NULL; device; device = device->next) *out += !truth(member(device, "absent"));
    return OK;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    Json *list = member(current(), "devices"), *device = list ? list->first : NULL;
    int slot = 0;
    for (; device; device = device->next, slot++)
        if (!truth(member(device, "absent")) && index-- == 0) break;
    if (!device) return INVALID_ARGUMENT;
    *out = &slots[slot];
    return enter("nvmlDeviceGetHandleByIndex", slot);
}

EXPORT int nvmlDeviceGetIndex(void *handle, unsigned *out) {
    int slot = slot_of(handle), code = enter("nvmlDeviceGetIndex", slot);
    Json *list = member(current(), "devices"), *device = list ? list->first : NULL;
    *out = 0;
    for (int i = 0; device && i < slot; device = device->next, i++) *out += !truth(member(device, "absent"));
    return code;
}

EXPORT int nvmlDeviceGetName(void *handle, char *out, unsigned size) {
    return text("nvmlDeviceGetName", handle, "name", "NVIDIA H100 80GB HBM3", out, size);
}
EXPORT int nvmlDeviceGetUUID(void *handle, char *out, unsigned size) {
    return text("nvmlDeviceGetUUID", handle, "uuid", "GPU-00000000-0000-0000-0000-%012d", out, size);
}
EXPORT int nvmlDeviceGetMinorNumber(void *handle, unsigned *out) {
    return *out = slot_of(handle), enter("nvmlDeviceGetMinorNumber", slot_of(handle));
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
    char found[96];
    for (int slot = 0; device_at(current(), slot) && slot < MOST_GPUS; slot++)
        if (!nvmlDeviceGetUUID(&slots[slot], found, sizeof found) && !strcmp(found, uuid)) return *out = &slots[slot], OK;
    return NOT_FOUND;
}

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} Pci;
_Static_assert(sizeof(Pci) == 68, "nvmlPciInfo_t");

EXPORT int nvmlDeviceGetPciInfo_v3(void *handle, Pci *out) {
    memset(out, 0, sizeof *out);
    return text("nvmlDeviceGetPciInfo", handle, "bus_id", "00000000:%02X:00.0", out->busId, sizeof out->busId);
}

/* ── exports: figures ─────────────────────────────────────────────────────────────────────────────────────────── */

static int memory_of(void *handle, double *total, double *used) {
    int code = number("nvmlDeviceGetMemoryInfo", handle, "mem_total", 85520809984.0, total);
    Json *root = current(), *found = value(root, device_at(root, slot_of(handle)), "mem_used");
    *used = found ? found->num : 0;
    return code;
}
EXPORT int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long out[3]) {
    double total = 0, used = 0;
    int code = memory_of(handle, &total, &used);
    out[0] = total, out[1] = total - used, out[2] = used;
    return code;
}
EXPORT int nvmlDeviceGetMemoryInfo_v2(void *handle, unsigned long long out[5]) {
    double total = 0, used = 0;
    int code = memory_of(handle, &total, &used);
    out[1] = total, out[2] = 0, out[3] = total - used, out[4] = used;
    return code;
}
EXPORT int nvmlDeviceGetUtilizationRates(void *handle, unsigned out[2]) {
    double gpu = 0;
    int code = number("nvmlDeviceGetUtilizationRates", handle, "util", 0, &gpu);
    Json *root = current(), *bus = value(root, device_at(root, slot_of(handle)), "util_mem");
    out[0] = gpu, out[1] = bus ? bus->num : 0;
    return code;
}

#define INTEGER(name, key, otherwise)                                 \
    EXPORT int name(void *handle, unsigned *out) {                    \
        double found = 0;                                             \
        int code = number(#name, handle, key, otherwise, &found);     \
        return *out = (unsigned)found, code;                          \
    }
INTEGER(nvmlDeviceGetPowerUsage, "power", 98000)

EXPORT int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *out) {
    double found = 0;
    int code = number("nvmlDeviceGetTemperature", handle, "temperature", 41, &found);
    return (void)sensor, *out = (unsigned)found, code;
}
EXPORT int nvmlDeviceGetTemperatureV(void *handle, int out[3]) {
    double found = 0;
    int code = number("nvmlDeviceGetTemperatureV", handle, "temperature", 41, &found);
    return out[2] = (int)found, code;
}
EXPORT int nvmlDeviceGetMemoryErrorCounter(void *handle, int type, int counter, int location, unsigned long long *out) {
    double found = 0;
    const char *key = location == 7 ? "ecc_sram" : "ecc_dram";
    int code = number("nvmlDeviceGetMemoryErrorCounter", handle, key, 0, &found);
    return (void)counter, *out = type == 1 ? found : 0, code;
}
EXPORT int nvmlDeviceGetTotalEccErrors(void *handle, int type, int counter, unsigned long long *out) {
    double dram = 0, sram = 0;
    int code = number("nvmlDeviceGetTotalEccErrors", handle, "ecc_dram", 0, &dram);
    if (!code) number("nvmlDeviceGetTotalEccErrors", handle, "ecc_sram", 0, &sram);
    return (void)counter, *out = type == 1 ? dram + sram : 0, code;
}
EXPORT int nvmlDeviceGetRemappedRows(void *handle, unsigned *right, unsigned *wrong, unsigned *pending, unsigned *failed) {
    static const char *keys[] = {"remap_correctable", "remap_uncorrectable", "remap_pending", "remap_failed"};
    unsigned *out[] = {right, wrong, pending, failed};
    int code = OK;
    for (int i = 0; i < 4 && !code; i++) {
        double found = 0;
        code = number("nvmlDeviceGetRemappedRows", handle, keys[i], 0, &found);
        *out[i] = (unsigned)found;
    }
    return code;
}

typedef struct {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    unsigned valueType;
    int nvmlReturn;
    union { double d; unsigned ui; unsigned long long ull; } value;
} Field;
_Static_assert(sizeof(Field) == 40, "nvmlFieldValue_t");

EXPORT int nvmlDeviceGetFieldValues(void *handle, int count, Field *fields) {
    double action = 0;
    int code = number("nvmlDeviceGetFieldValues", handle, "recovery_action", 0, &action);
    if (code && code != NOT_SUPPORTED) return code;
    for (int i = 0; i < count; i++) {
        fields[i].nvmlReturn = fields[i].fieldId == 230 ? code : NOT_SUPPORTED;
        fields[i].valueType = 1;
        fields[i].value.ui = (unsigned)action;
    }
    return OK;
}

/* ── exports: events ──────────────────────────────────────────────────────────────────────────────────────────── */

typedef struct {
    double seen; /* the last seq that this set has delivered or was too late for */
    unsigned long long mask[MOST_GPUS];
} Set;

typedef struct {
    void *device;
    unsigned long long eventType, eventData;
    unsigned gpuInstanceId, computeInstanceId;
} Event;
_Static_assert(sizeof(Event) == 32, "nvmlEventData_t");

EXPORT int nvmlEventSetCreate(Set **out) {
    *out = calloc(1, sizeof **out);
    Json *list = member(current(), "events");
    for (Json *event = list ? list->first : NULL; event; event = event->next) {
        Json *seq = member(event, "seq");
        if (seq && seq->num > (*out)->seen) (*out)->seen = seq->num;
    }
    return enter("nvmlEventSetCreate", -1);
}
EXPORT int nvmlEventSetFree(Set *set) { return free(set), OK; }

EXPORT int nvmlDeviceGetSupportedEventTypes(void *handle, unsigned long long *out) {
    double found = 0;
    int code = number("nvmlDeviceGetSupportedEventTypes", handle, "event_types", 0x1F, &found);
    return *out = found, code;
}
EXPORT int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, Set *set) {
    int slot = slot_of(handle), code = enter("nvmlDeviceRegisterEvents", slot);
    unsigned long long supported = 0;
    if (code) return code;
    nvmlDeviceGetSupportedEventTypes(handle, &supported);
    if (types & ~supported) return NOT_SUPPORTED;
    set->mask[slot] = types;
    return OK;
}

static int next_event(Set *set, Event *out) {
    Json *root = current(), *list = member(root, "events");
    for (Json *event = list ? list->first : NULL; event; event = event->next) {
        Json *seq = member(event, "seq"), *gpu = member(event, "gpu");
        Json *type = member(event, "type"), *data = member(event, "data");
        if (!seq || seq->num <= set->seen || !gpu) continue;
        set->seen = seq->num;
        unsigned long long bit = type ? (unsigned long long)type->num : 8;
        if (!(set->mask[(int)gpu->num] & bit)) continue;
        *out = (Event){&slots[(int)gpu->num], bit, data ? (unsigned long long)data->num : 0, 0xFFFFFFFF, 0xFFFFFFFF};
        return 1;
    }
    return 0;
}

EXPORT int nvmlEventSetWait_v2(Set *set, Event *out, unsigned timeout_ms) {
    struct timespec slice = {0, 5000000};
    int code = enter("nvmlEventSetWait_v2", -1);
    for (unsigned waited = 0; !code; waited += 5) {
        if (next_event(set, out)) return OK;
        Json *root = current();
        for (int slot = 0; slot < MOST_GPUS; slot++)
            if (set->mask[slot] && truth(member(device_at(root, slot), "lost_on_wait"))) return LOST;
        if (waited >= timeout_ms) return TIMEOUT;
        nanosleep(&slice, NULL);
    }
    return code;
}

/* ── exports: what this fake's cards do not have; Ray's own detection asks for some of it ─────────────────────── */

#define UNSUPPORTED(name)                                            \
    EXPORT int name(void *handle) {                                  \
        int code = enter(#name, slot_of(handle));                    \
        return code ? code : NOT_SUPPORTED;                          \
    }
UNSUPPORTED(nvmlDeviceGetSerial)
UNSUPPORTED(nvmlDeviceGetNumaNodeId)
UNSUPPORTED(nvmlDeviceGetCudaComputeCapability)
UNSUPPORTED(nvmlDeviceGetArchitecture)
UNSUPPORTED(nvmlDeviceGetComputeMode)
UNSUPPORTED(nvmlDeviceGetTemperatureThreshold)
UNSUPPORTED(nvmlDeviceGetEnforcedPowerLimit)
UNSUPPORTED(nvmlDeviceGetClockInfo)
UNSUPPORTED(nvmlDeviceGetMaxClockInfo)
UNSUPPORTED(nvmlDeviceGetPersistenceMode)
UNSUPPORTED(nvmlDeviceGetEccMode)
UNSUPPORTED(nvmlDeviceGetRetiredPages)
UNSUPPORTED(nvmlDeviceGetRetiredPagesPendingStatus)
UNSUPPORTED(nvmlDeviceGetCurrPcieLinkGeneration)
UNSUPPORTED(nvmlDeviceGetCurrPcieLinkWidth)
UNSUPPORTED(nvmlDeviceGetMaxPcieLinkGeneration)
UNSUPPORTED(nvmlDeviceGetMaxPcieLinkWidth)
UNSUPPORTED(nvmlDeviceGetPcieReplayCounter)
UNSUPPORTED(nvmlDeviceGetNvLinkState)
UNSUPPORTED(nvmlDeviceGetNvLinkErrorCounter)
UNSUPPORTED(nvmlDeviceGetCurrentClocksEventReasons)
UNSUPPORTED(nvmlDeviceGetCurrentClocksThrottleReasons)
UNSUPPORTED(nvmlDeviceGetGpuFabricInfo)
UNSUPPORTED(nvmlDeviceGetGpuFabricInfoV)
UNSUPPORTED(nvmlDeviceGetComputeRunningProcesses_v3)
UNSUPPORTED(nvmlDeviceGetGraphicsRunningProcesses_v3)
UNSUPPORTED(nvmlDeviceGetMigMode)
UNSUPPORTED(nvmlDeviceGetMaxMigDeviceCount)
UNSUPPORTED(nvmlDeviceGetMigDeviceHandleByIndex)
UNSUPPORTED(nvmlDeviceIsMigDeviceHandle)
