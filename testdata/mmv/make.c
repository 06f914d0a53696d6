/* Writes v1.mmv, v2.mmv and v3.mmv with libpcp_mmv: see README.md. */
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <pcp/pmapi.h>
#include <pcp/mmv_stats.h>

#define LONG_NAME "a.name.that.is.longer.than.the.sixty.four.bytes.which.version.one.has.room.for"

static mmv_instances_t disks[] = { { 0, "sda" }, { 1, "sdb" } };
static mmv_indom_t indoms[] = { { 7, 2, disks, "disks", "all disks of the host" } };
static mmv_metric_t metrics[] = {
    { "requests", 1, MMV_TYPE_U64, MMV_SEM_COUNTER, MMV_UNITS(0,0,1,0,0,0), 0, "requests", "requests since the start" },
    { "queue", 2, MMV_TYPE_I32, MMV_SEM_INSTANT, MMV_UNITS(0,0,1,0,0,0), 0, "only short", NULL },
    { "limit", 3, MMV_TYPE_U32, MMV_SEM_DISCRETE, MMV_UNITS(1,0,0,2,0,0), 0, NULL, NULL },
    { "balance", 4, MMV_TYPE_I64, MMV_SEM_INSTANT, MMV_UNITS(0,0,0,0,0,0), 0, NULL, NULL },
    { "load", 5, MMV_TYPE_FLOAT, MMV_SEM_INSTANT, MMV_UNITS(0,0,0,0,0,0), 0, NULL, NULL },
    { "rate", 6, MMV_TYPE_DOUBLE, MMV_SEM_INSTANT, MMV_UNITS(1,-1,0,1,3,0), 0, NULL, NULL },
    { "version", 7, MMV_TYPE_STRING, MMV_SEM_DISCRETE, MMV_UNITS(0,0,0,0,0,0), 0, NULL, NULL },
    { "busy", 8, MMV_TYPE_ELAPSED, MMV_SEM_COUNTER, MMV_UNITS(0,1,0,0,1,0), 0, NULL, NULL },
    { "io.bytes", 9, MMV_TYPE_U64, MMV_SEM_COUNTER, MMV_UNITS(1,0,0,0,0,0), 7, "bytes", "bytes read and written" },
};

static void fill(void *m, const char *io)
{
    pmAtomValue *v;
    mmv_stats_set(m, "requests", "", 12345678901.0);
    mmv_stats_set(m, "queue", "", -3);
    mmv_stats_set(m, "limit", "", 512);
    mmv_stats_set(m, "balance", "", -5000000000.0);
    mmv_stats_set(m, "load", "", 0.75);
    mmv_stats_set(m, "rate", "", 1.5);
    mmv_stats_set_string(m, "version", "", "1.2.3");
    v = mmv_lookup_value_desc(m, "busy", "");
    mmv_set_value(m, v, 2500);
    mmv_stats_set(m, io, "sda", 4096);
    mmv_stats_set(m, io, "sdb", 8192);
}

int main(int argc, char **argv)
{
    mmv_registry_t *r;
    void *m;
    char path[4096];
    int i;

    snprintf(path, sizeof(path), "%s/v1.mmv", argv[1]);
    m = mmv_stats_init(strdup(path), 42, MMV_FLAG_PROCESS, metrics, 9, indoms, 1);
    if (!m) { perror("v1"); return 1; }
    fill(m, "io.bytes");

    for (int version = 2; version <= 3; version++) {
        snprintf(path, sizeof(path), "%s/v%d.mmv", argv[1], version);
        if (version == 2) {
            mmv_instances2_t disks2[] = { { 0, "sda" }, { 1, "sdb" } };
            mmv_indom2_t indoms2[] = { { 7, 2, disks2, "disks", "all disks of the host" } };
            mmv_metric2_t metrics2[9];
            for (i = 0; i < 9; i++) {
                metrics2[i] = (mmv_metric2_t){ metrics[i].name, metrics[i].item, metrics[i].type,
                    metrics[i].semantics, metrics[i].dimension, metrics[i].indom,
                    metrics[i].shorttext, metrics[i].helptext };
            }
            metrics2[8].name = LONG_NAME;
            m = mmv_stats2_init(strdup(path), 0, MMV_FLAG_NOPREFIX | MMV_FLAG_SENTINEL, metrics2, 9, indoms2, 1);
            if (!m) { perror("v2"); return 1; }
            fill(m, LONG_NAME);
            memset(mmv_lookup_value_desc(m, "queue", ""), -1, 8);
            mmv_stats_set_string(m, "version", "", "");
        } else {
            r = mmv_stats_registry(strdup(path), 42, 0);
            mmv_stats_add_indom(r, 7, "disks", "all disks of the host");
            mmv_stats_add_instance(r, 7, 0, "sda");
            mmv_stats_add_instance(r, 7, 1, "sdb");
            for (i = 0; i < 9; i++)
                mmv_stats_add_metric(r, metrics[i].name, metrics[i].item, metrics[i].type,
                    metrics[i].semantics, metrics[i].dimension, metrics[i].indom,
                    metrics[i].shorttext, metrics[i].helptext);
            mmv_stats_add_registry_label(r, "service", "\"shop\"", MMV_STRING_TYPE, 0);
            mmv_stats_add_registry_label(r, "note", "\"not of the identity\"", MMV_STRING_TYPE, 1);
            mmv_stats_add_metric_label(r, 1, "shard", "12", MMV_NUMBER_TYPE, 0);
            mmv_stats_add_metric_label(r, 1, "canary", "true", MMV_BOOLEAN_TYPE, 0);
            mmv_stats_add_indom_label(r, 7, "kind", "{\"bus\":\"nvme\",\"lanes\":[1,2]}", MMV_MAP_TYPE, 0);
            if (mmv_stats_add_instance_label(r, 7, 1, "service", "\"backup\"", MMV_STRING_TYPE, 0) < 0) perror("label");
            m = mmv_stats_start(r);
            if (!m) { perror("v3"); return 1; }
            fill(m, "io.bytes");
        }
    }
    return 0;
}
