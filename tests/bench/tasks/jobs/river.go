// River: river {make|client|worker} ADDRESS, built in the Go module of build/peers/river.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type Args struct {
	ID int `json:"id"`
}

func (Args) Kind() string { return "job" }

func good[T any](found T, err error) T {
	if err != nil {
		panic(err)
	}
	return found
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	driver := riverpgxv5.New(good(pgxpool.New(ctx, os.Args[2])))
	switch os.Args[1] {
	case "make":
		good(good(rivermigrate.New(driver, nil)).Migrate(ctx, rivermigrate.DirectionUp, nil))
	case "worker":
		count, workers := 0, river.NewWorkers()
		marks := strings.Fields(os.Getenv("OMQ_BENCH_MARKS"))
		river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[Args]) error {
			count++
			for _, mark := range marks {
				if mark == strconv.Itoa(count) {
					return good(os.Create(os.Getenv("OMQ_BENCH_PLACE") + "." + mark)).Close()
				}
			}
			return nil
		}))
		// As shipped it asks ten times a second: with one job at a time that is ten jobs a second.
		client := good(river.NewClient(driver, &river.Config{Workers: workers,
			FetchCooldown: time.Millisecond,
			Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}}}))
		if err := client.Start(ctx); err != nil {
			panic(err)
		}
		<-client.Stopped()
	case "client":
		client := good(river.NewClient(driver, &river.Config{}))
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); fmt.Println("put") {
			var total, batch int
			good(fmt.Sscanf(lines.Text(), "put %d %d", &total, &batch))
			many := make([]river.InsertManyParams, batch)
			for number := range many {
				many[number].Args = Args{7}
			}
			for done := 0; done < total; done += batch {
				if batch == 1 {
					good(client.Insert(ctx, Args{7}, nil))
				} else {
					good(client.InsertMany(ctx, many))
				}
			}
		}
	}
}
