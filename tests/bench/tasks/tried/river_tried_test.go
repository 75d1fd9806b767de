// What River can, each on a database of its own: go test, with RIVER_TRIED its address.
package tried

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertest"
	"github.com/riverqueue/river/rivertype"
	"github.com/robfig/cron/v3"
)

type Args struct {
	Name string `json:"name"`
}

func (Args) Kind() string { return "work" }

type Client = river.Client[pgx.Tx]
type Does = func(context.Context, *river.Job[Args]) error

var ctx = context.Background()

func need(t *testing.T, held bool, what string) {
	t.Helper()
	if !held {
		t.Fatal(what)
	}
}

func good[T any](found T, err error) T {
	if err != nil {
		panic(err)
	}
	return found
}

func until(t *testing.T, held func() bool) {
	t.Helper()
	for end := time.Now().Add(150 * time.Second); !held(); time.Sleep(20 * time.Millisecond) {
		need(t, time.Now().Before(end), "not in time")
	}
}

func pool(t *testing.T) *pgxpool.Pool {
	made := good(pgxpool.New(ctx, os.Getenv("RIVER_TRIED")))
	t.Cleanup(made.Close)
	good(good(rivermigrate.New(riverpgxv5.New(made), nil)).Migrate(ctx, rivermigrate.DirectionUp, nil))
	return made
}

type worker struct {
	river.WorkerDefaults[Args]
	does Does
}

func (made *worker) Work(ctx context.Context, job *river.Job[Args]) error { return made.does(ctx, job) }

func (made *worker) Timeout(job *river.Job[Args]) time.Duration {
	if job.Args.Name == "endless" {
		return -1
	}
	return 0
}

// A client that has a worker, which does not work before Start.
func client(t *testing.T, place *pgxpool.Pool, does Does, more ...func(*river.Config)) *Client {
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{does: does})
	config := &river.Config{
		Logger:  slog.New(slog.DiscardHandler),
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}},
		Workers: workers,
	}
	for _, each := range more {
		each(config)
	}
	return good(river.NewClient(riverpgxv5.New(place), config))
}

func start(t *testing.T, made *Client) {
	need(t, made.Start(ctx) == nil, "it does not start")
	t.Cleanup(func() { _ = made.StopAndCancel(ctx) })
}

func put(made *Client, name string, opts *river.InsertOpts) *rivertype.JobInsertResult {
	return good(made.Insert(ctx, Args{name}, opts))
}

// What was done, in order.
type notes struct {
	lock  sync.Mutex
	names []string
	times []time.Time
}

func (all *notes) does(_ context.Context, job *river.Job[Args]) error {
	all.lock.Lock()
	defer all.lock.Unlock()
	all.names, all.times = append(all.names, job.Args.Name), append(all.times, time.Now())
	return nil
}

func (all *notes) count() int {
	all.lock.Lock()
	defer all.lock.Unlock()
	return len(all.names)
}

func state(made *Client, id int64) rivertype.JobState { return good(made.JobGet(ctx, id)).State }

func Test_delay(t *testing.T) {
	var done notes
	made, begun := client(t, pool(t), done.does), time.Now()
	start(t, made)
	put(made, "later", &river.InsertOpts{ScheduledAt: begun.Add(time.Second)})
	until(t, func() bool { return done.count() == 1 })
	need(t, done.times[0].Sub(begun) >= 900*time.Millisecond, "too early")
}

// The worker that leads plans them; a time that none of them saw is not made up for.
func Test_planned_times(t *testing.T) {
	nightly := good(cron.ParseStandard("CRON_TZ=Europe/Berlin 30 3 * * *"))
	next := nightly.Next(time.Now()).In(good(time.LoadLocation("Europe/Berlin")))
	need(t, next.Hour() == 3 && next.Minute() == 30, "another time")
	var done notes
	start(t, client(t, pool(t), done.does, func(config *river.Config) {
		for name, plan := range map[string]river.PeriodicSchedule{
			"nightly": nightly, "often": river.PeriodicInterval(time.Second)} {
			config.PeriodicJobs = append(config.PeriodicJobs, river.NewPeriodicJob(plan,
				func() (river.JobArgs, *river.InsertOpts) { return Args{name}, nil }, nil))
		}
	}))
	until(t, func() bool { return done.count() == 2 })
	need(t, done.names[0] == "often" && done.names[1] == "often", "another job")
}

type second struct{}

func (second) NextRetry(*rivertype.JobRow) time.Time { return time.Now().Add(time.Second) }

func Test_retries(t *testing.T) {
	var done notes
	made := client(t, pool(t), func(ctx context.Context, job *river.Job[Args]) error {
		_ = done.does(ctx, job)
		if job.Attempt < 3 {
			return errors.New("again")
		}
		return nil
	}, func(config *river.Config) { config.RetryPolicy = second{} })
	start(t, made)
	job := put(made, "fails", nil).Job
	until(t, func() bool { return state(made, job.ID) == rivertype.JobStateCompleted })
	need(t, len(done.times) == 3 && done.times[1].Sub(done.times[0]) >= 900*time.Millisecond, "no pause")
}

// The job itself puts itself off, and no attempt is counted.
func Test_snooze(t *testing.T) {
	var tries atomic.Int32
	made := client(t, pool(t), func(context.Context, *river.Job[Args]) error {
		if tries.Add(1) == 1 {
			return river.JobSnooze(time.Second)
		}
		return nil
	})
	start(t, made)
	job := put(made, "later", nil).Job
	until(t, func() bool { return state(made, job.ID) == rivertype.JobStateCompleted })
	need(t, good(made.JobGet(ctx, job.ID)).Attempt == 1, "an attempt was counted")
}

func Test_priority(t *testing.T) {
	var done notes
	made := client(t, pool(t), done.does)
	for priority, name := range map[int]string{4: "low", 2: "middle", 1: "high"} {
		put(made, name, &river.InsertOpts{Priority: priority})
	}
	start(t, made)
	until(t, func() bool { return done.count() == 3 })
	need(t, done.names[0] == "high" && done.names[1] == "middle" && done.names[2] == "low", "another order")
	_, err := made.Insert(ctx, Args{}, &river.InsertOpts{Priority: 5})
	need(t, err != nil, "there is a fifth")
}

func Test_once(t *testing.T) {
	var done notes
	made := client(t, pool(t), done.does)
	once := &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}
	first := put(made, "one", once)
	again := put(made, "one", once)
	need(t, again.UniqueSkippedAsDuplicate && again.Job.ID == first.Job.ID, "it was put twice")
	need(t, !put(made, "other", once).UniqueSkippedAsDuplicate, "the other was not put")
	start(t, made)
	until(t, func() bool { return state(made, first.Job.ID) == rivertype.JobStateCompleted })
	need(t, put(made, "one", once).UniqueSkippedAsDuplicate, "not while its row is kept")
	good(made.JobDelete(ctx, first.Job.ID))
	need(t, !put(made, "one", once).UniqueSkippedAsDuplicate, "also when its row is gone")
}

// Who has put the job looks at its row; events of its end go to the worker's own process.
func Test_results(t *testing.T) {
	place := pool(t)
	asks := good(river.NewClient(riverpgxv5.New(place), &river.Config{}))
	job := put(asks, "sum", nil).Job
	start(t, client(t, place, func(ctx context.Context, _ *river.Job[Args]) error {
		return river.RecordOutput(ctx, 3+4)
	}))
	until(t, func() bool { return state(asks, job.ID) == rivertype.JobStateCompleted })
	need(t, string(good(asks.JobGet(ctx, job.ID)).Output()) == "7", "another result")
}

// Of each worker: two of them do two at once.
func Test_at_once(t *testing.T) {
	var now, most atomic.Int32
	var done notes
	does := func(ctx context.Context, job *river.Job[Args]) error {
		if count := now.Add(1); count > most.Load() {
			most.Store(count)
		}
		time.Sleep(300 * time.Millisecond)
		now.Add(-1)
		return done.does(ctx, job)
	}
	place := pool(t)
	for workers := int32(1); workers <= 2; workers++ {
		made := client(t, place, does)
		for range 4 {
			put(made, "one", nil)
		}
		start(t, made)
		until(t, func() bool { return done.count() == int(4*workers) })
		need(t, most.Load() == workers, "another number at once")
	}
}

func Test_cancel(t *testing.T) {
	place, heard := pool(t), make(chan error, 1)
	asks := good(river.NewClient(riverpgxv5.New(place), &river.Config{}))
	made := client(t, place, func(inner context.Context, job *river.Job[Args]) error {
		good(river.ClientFromContext[pgx.Tx](inner).JobUpdate(inner, job.ID,
			&river.JobUpdateParams{Output: "page 1 of 2"}))
		<-inner.Done()
		heard <- context.Cause(inner)
		return inner.Err()
	})
	start(t, made)
	job := put(asks, "long", nil).Job
	until(t, func() bool { return string(good(asks.JobGet(ctx, job.ID)).Output()) == `"page 1 of 2"` })
	need(t, state(asks, job.ID) == rivertype.JobStateRunning, "not in the middle")
	good(asks.JobCancel(ctx, job.ID))
	need(t, errors.Is(<-heard, rivertype.ErrJobCancelledRemotely), "another reason")
	until(t, func() bool { return state(asks, job.ID) == rivertype.JobStateCancelled })
}

func Test_transaction(t *testing.T) {
	place := pool(t)
	good(place.Exec(ctx, "CREATE TABLE IF NOT EXISTS parcels (name text)"))
	var done notes
	made := client(t, place, func(ctx context.Context, job *river.Job[Args]) error {
		tx := good(place.Begin(ctx))
		defer func() { _ = tx.Rollback(ctx) }()
		good(tx.Exec(ctx, "INSERT INTO parcels VALUES ($1)", job.Args.Name))
		good(river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job))
		_ = done.does(ctx, job)
		return tx.Commit(ctx)
	})
	for _, name := range []string{"undone", "kept"} {
		tx := good(place.Begin(ctx))
		good(made.InsertTx(ctx, tx, Args{name}, nil))
		if name == "kept" {
			need(t, tx.Commit(ctx) == nil, "no commit")
		} else {
			need(t, tx.Rollback(ctx) == nil, "no rollback")
		}
	}
	start(t, made)
	var parcels int
	until(t, func() bool {
		need(t, place.QueryRow(ctx, "SELECT count(*) FROM parcels").Scan(&parcels) == nil, "no count")
		return parcels == 1
	})
	need(t, done.count() == 1 && done.names[0] == "kept", "what was undone was done")
}

// In a transaction that is undone, on a PostgreSQL.
func Test_fixtures(t *testing.T) {
	place := pool(t)
	tx := good(place.Begin(ctx))
	defer func() { _ = tx.Rollback(ctx) }()
	var done notes
	good(client(t, place, done.does).InsertTx(ctx, tx, Args{"asked for"}, nil))
	rivertest.RequireInsertedTx[*riverpgxv5.Driver](ctx, t, tx, Args{}, nil)
	tested := rivertest.NewWorker(t, riverpgxv5.New(nil), &river.Config{}, river.WorkFunc(done.does))
	found := good(tested.Work(ctx, t, tx, Args{"seven"}, nil))
	need(t, found.EventKind == river.EventKindJobCompleted && done.count() == 1, "not done")
}

// A worker is killed (-9) in the middle of its jobs. They begin again when they have been running for
// RescueStuckJobsAfter (an hour, unless it is set), as does one that is well, heeds no end of its
// time and takes longer. One without a time limit is never begun again.
func Test_killed(t *testing.T) {
	var begun notes
	place, free := pool(t), make(chan bool)
	made := client(t, place, func(inner context.Context, job *river.Job[Args]) error {
		_ = begun.does(inner, job)
		if job.Attempt == 1 {
			<-free
		}
		return nil
	}, func(config *river.Config) {
		config.JobTimeout, config.RescueStuckJobsAfter = time.Second, 2*time.Second
		config.RetryPolicy = second{}
		config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 4}}
	})
	if os.Getenv("RIVER_KILLED") != "" {
		start(t, made)
		select {}
	}
	dead, endless := put(made, "dead", nil).Job, put(made, "endless", nil).Job
	running := func(id int64) bool { return state(made, id) == rivertype.JobStateRunning }
	other := exec.Command(os.Args[0], "-test.run=^Test_killed$")
	other.Env = append(os.Environ(), "RIVER_KILLED=yes")
	need(t, other.Start() == nil, "it does not start")
	until(t, func() bool { return running(dead.ID) && running(endless.ID) })
	need(t, other.Process.Kill() == nil && other.Wait() != nil, "it lives")
	start(t, made)
	t.Cleanup(func() { close(free) })
	put(made, "well", nil)
	until(t, func() bool { return begun.count() == 1 })
	need(t, begun.names[0] == "well" && running(dead.ID), "the end of the dead one was seen")
	until(t, func() bool { return state(made, dead.ID) == rivertype.JobStateCompleted && begun.count() == 3 })
	t.Log(begun.names, begun.times[1].Sub(begun.times[0]), begun.times[2].Sub(begun.times[0]))
	need(t, begun.names[1] != begun.names[2] && running(endless.ID), "others were begun")
}
