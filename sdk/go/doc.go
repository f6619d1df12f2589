// Package schedo is a client and a worker for schedo, a durable job scheduler. It needs the standard library only.
//
// A client submits jobs and reads them:
//
//	client := schedo.NewClient(schedo.ClientOptions{})
//	job, err := client.Submit(ctx, "resize", map[string]any{"file": "a.png"}, schedo.JobOptions{})
//
// A worker runs them:
//
//	worker := schedo.NewWorker(schedo.WorkerOptions{Slots: 4})
//	schedo.Handle(worker, "resize", func(ctx context.Context, in Picture) (Size, error) { … })
//	err := worker.Run(ctx)
//
// Fields of records have the names of the HTTP API; docs/api.md says what each of them means. A duration that the
// server reads is a text such as "90s" or "1h30m".
package schedo
