/* Would a second thread that syncs while the next group is taken pay? (ADR 0059)

   The skeleton of the queue manager with nothing but its system calls: requests by msgrcv(2), one
   pwrite(2) and one fdatasync(2) a group, clients woken by semop(2); what else manager and clients
   do is time burnt on the processor. By turns:

       inline   take a group, write, sync, wake; then the next group
       thread   write, leave sync and waking to a second thread, and take the next group meanwhile;
                it goes to the thread when that one is free. The best case: no interpreter, no lock
                but the hand-over, and the thread touches nothing that the engine has.

       cc -O2 -pthread -o build/sync_overlap tests/bench/sync_overlap.c
       build/sync_overlap FILE CLIENTS ROUNDS [SYNC_US]

   FILE lies on the disk that is meant. SYNC_US: a sync takes so long and costs nothing, instead of
   the disk's. Requests a second and microseconds of all processors a request, medians, and the
   median of the rounds' ratios. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS_MAX = 64, ROUNDS_MAX = 101, PAGE = 4096, BLOCKS = 16384, REQUEST = 96 };
/* As measured of omq, without what is a system call here (ADR 0058). */
static const long GROUP_NS = 15000, REQUEST_NS = 8000, CLIENT_NS = 20000, ROUND_NS = 1000000000;
static int queue, semaphores, file;
static long sync_us;
static char block[PAGE * 64] __attribute__((aligned(4096)));
struct group { int count, client[CLIENTS_MAX]; };

static long now(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec * 1000000000L + at.tv_nsec;
}

static void must(long result, const char *what) {
    if (result < 0) { perror(what); exit(1); }
}

static void burn(long ns) {
    long end = now(CLOCK_THREAD_CPUTIME_ID) + ns;
    while (now(CLOCK_THREAD_CPUTIME_ID) < end) {}
}

static void client(int number) {
    struct { long type; char data[REQUEST]; } request = {1, {0}};
    struct sembuf wait = {number, -1, 0};
    memcpy(request.data, &number, sizeof number);
    for (;;) {
        burn(CLIENT_NS);
        if (msgsnd(queue, &request, REQUEST, 0) < 0 || semop(semaphores, &wait, 1) < 0) _exit(0);
    }
}

static void take(struct group *group) {
    struct { long type; char data[REQUEST]; } request;
    int flags = 0;
    group->count = 0;
    while (group->count < CLIENTS_MAX && msgrcv(queue, &request, REQUEST, 0, flags) >= 0) {
        memcpy(&group->client[group->count++], request.data, sizeof(int));
        flags = IPC_NOWAIT;
    }
    burn(GROUP_NS + group->count * REQUEST_NS);
}

static void put_down(const struct group *group) {
    static long at = 0;
    long length = (128 + group->count * 700 + PAGE - 1) / PAGE * PAGE;
    must(pwrite(file, block, length, at % BLOCKS * PAGE), "pwrite");
    at += length / PAGE;
}

static void make_durable(void) {
    struct timespec slow = {0, sync_us * 1000};
    if (sync_us) nanosleep(&slow, NULL);
    else must(fdatasync(file), "fdatasync");
}

static void wake(const struct group *group) {
    for (int i = 0; i < group->count; i++) {
        struct sembuf release = {group->client[i], 1, 0};
        must(semop(semaphores, &release, 1), "semop");
    }
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given = PTHREAD_COND_INITIALIZER, is_free = PTHREAD_COND_INITIALIZER;
static struct group handed;
static int busy, ended;

static void *syncer(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!busy && !ended) pthread_cond_wait(&given, &lock);
        if (!busy) break;
        pthread_mutex_unlock(&lock);
        make_durable();
        wake(&handed);
        pthread_mutex_lock(&lock);
        busy = 0;
        pthread_cond_signal(&is_free);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void hand_over(const struct group *group) {
    pthread_mutex_lock(&lock);
    while (busy) pthread_cond_wait(&is_free, &lock);
    handed = *group;
    busy = 1;
    pthread_cond_signal(&given);
    pthread_mutex_unlock(&lock);
}

static long spent(void) {
    struct rusage self, children;
    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    return 1000000L * (self.ru_utime.tv_sec + self.ru_stime.tv_sec + children.ru_utime.tv_sec
                       + children.ru_stime.tv_sec) + self.ru_utime.tv_usec
           + self.ru_stime.tv_usec + children.ru_utime.tv_usec + children.ru_stime.tv_usec;
}

struct found { double rate, cost; };

/* One round with new clients: requests a second, microseconds of the processors for one. */
static struct found run(int clients, int threaded) {
    pid_t pids[CLIENTS_MAX];
    long done = 0, before = spent();
    pthread_t thread;
    queue = msgget(IPC_PRIVATE, 0600);
    semaphores = semget(IPC_PRIVATE, clients, 0600);
    must(queue, "msgget");
    must(semaphores, "semget");
    for (int i = 0; i < clients; i++)
        if ((pids[i] = fork()) == 0) client(i);
    busy = ended = 0;
    if (threaded) pthread_create(&thread, NULL, syncer, NULL);
    long began = now(CLOCK_MONOTONIC);
    while (now(CLOCK_MONOTONIC) - began < ROUND_NS) {
        struct group group;
        take(&group);
        put_down(&group);
        if (threaded) hand_over(&group);
        else {
            make_durable();
            wake(&group);
        }
        done += group.count;
    }
    double seconds = (now(CLOCK_MONOTONIC) - began) / 1e9;
    if (threaded) {
        pthread_mutex_lock(&lock);
        ended = 1;
        pthread_cond_signal(&given);
        pthread_mutex_unlock(&lock);
        pthread_join(thread, NULL);
    }
    msgctl(queue, IPC_RMID, NULL);
    semctl(semaphores, 0, IPC_RMID);
    for (int i = 0; i < clients; i++) waitpid(pids[i], NULL, 0);
    return (struct found){done / seconds, (double)(spent() - before) / done};
}

static int order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    qsort(values, count, sizeof *values, order);
    return values[count / 2];
}

int main(int argc, char **argv) {
    double rate[2][ROUNDS_MAX], cost[2][ROUNDS_MAX], ratio[ROUNDS_MAX];
    if (argc < 4) return fprintf(stderr, "usage: %s FILE CLIENTS ROUNDS [SYNC_US]\n", argv[0]), 64;
    int clients = atoi(argv[2]), rounds = atoi(argv[3]);
    if (clients < 1 || clients > CLIENTS_MAX || rounds < 1 || rounds > ROUNDS_MAX) return 64;
    sync_us = argc > 4 ? atol(argv[4]) : 0;
    must(file = open(argv[1], O_RDWR | O_CREAT, 0600), "open");
    for (long i = 0; i < BLOCKS + 64; i++) must(pwrite(file, block, PAGE, i * PAGE), "pwrite");
    must(fsync(file), "fsync");
    for (int round = 0; round < rounds; round++) {
        for (int turn = 0; turn < 2; turn++) {
            int threaded = (turn + round) % 2;
            struct found found = run(clients, threaded);
            rate[threaded][round] = found.rate;
            cost[threaded][round] = found.cost;
        }
        ratio[round] = rate[1][round] / rate[0][round];
    }
    printf("%d clients: inline %.0f/s, %.1f us; thread %.0f/s, %.1f us; ratio %.2f\n", clients,
           median(rate[0], rounds), median(cost[0], rounds), median(rate[1], rounds),
           median(cost[1], rounds), median(ratio, rounds));
    return 0;
}
