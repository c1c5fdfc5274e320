// The published Go client as a second opinion on the simulated Exoscale: what it creates, changes
// and deletes must be there, changed and gone, as it reads it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	v3 "github.com/exoscale/egoscale/v3"
	"github.com/exoscale/egoscale/v3/credentials"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ok")
}

func run(ctx context.Context) error {
	key := credentials.NewStaticCredentials(os.Getenv("EXOSCALE_API_KEY"), os.Getenv("EXOSCALE_API_SECRET"))
	first, err := v3.NewClient(key, v3.ClientOptWithEndpoint(v3.Endpoint(os.Getenv("EXOSCALE_API_ENDPOINT"))))
	if err != nil {
		return err
	}
	endpoint, err := first.GetZoneAPIEndpoint(ctx, v3.ZoneName(os.Getenv("EXOSCALE_API_ZONE")))
	if err != nil {
		return fmt.Errorf("zone: %w", err)
	}
	client := first.WithEndpoint(endpoint)
	done := func(what string, op *v3.Operation, err error) (v3.UUID, error) {
		if err != nil {
			return "", fmt.Errorf("%s: %w", what, err)
		}
		op, err = client.Wait(ctx, op, v3.OperationStateSuccess)
		if err != nil {
			return "", fmt.Errorf("%s: wait: %w", what, err)
		}
		return op.Reference.ID, nil
	}
	op, err := client.CreateLoadBalancer(ctx, v3.CreateLoadBalancerRequest{
		Name: "egoscale", Description: "by the Go client",
	})
	nlb, err := done("create", op, err)
	if err != nil {
		return err
	}
	pool := &v3.InstancePool{ID: v3.UUID(os.Getenv("INSTANCE_POOL"))}
	check := &v3.LoadBalancerServiceHealthcheck{
		Mode: "tcp", Port: 30080, Interval: 10, Timeout: 5, Retries: 1,
	}
	op, err = client.AddServiceToLoadBalancer(ctx, nlb, v3.AddServiceToLoadBalancerRequest{
		Name: "web", Port: 80, TargetPort: 30080, Protocol: "tcp", Strategy: "round-robin",
		InstancePool: pool, Healthcheck: check,
	})
	if _, err = done("add service", op, err); err != nil {
		return err
	}
	read, err := client.GetLoadBalancer(ctx, nlb)
	if err != nil {
		return err
	}
	if len(read.Services) != 1 || read.Services[0].TargetPort != 30080 || read.IP == nil {
		return fmt.Errorf("added: %+v", read)
	}
	service := read.Services[0].ID
	op, err = client.UpdateLoadBalancerService(ctx, nlb, service, v3.UpdateLoadBalancerServiceRequest{
		TargetPort: 31080, Strategy: "source-hash",
	})
	if _, err = done("update service", op, err); err != nil {
		return err
	}
	op, err = client.UpdateLoadBalancer(ctx, nlb, v3.UpdateLoadBalancerRequest{Name: "renamed"})
	if _, err = done("update", op, err); err != nil {
		return err
	}
	list, err := client.ListLoadBalancers(ctx)
	if err != nil {
		return err
	}
	found, err := list.FindLoadBalancer("renamed")
	if err != nil {
		return err
	}
	if it := found.Services[0]; it.TargetPort != 31080 || it.Strategy != "source-hash" || it.Port != 80 {
		return fmt.Errorf("updated: %+v", it)
	}
	op, err = client.DeleteLoadBalancerService(ctx, nlb, service)
	if _, err = done("delete service", op, err); err != nil {
		return err
	}
	op, err = client.DeleteLoadBalancer(ctx, nlb)
	if _, err = done("delete", op, err); err != nil {
		return err
	}
	if _, err = client.GetLoadBalancer(ctx, nlb); !errors.Is(err, v3.ErrNotFound) {
		return fmt.Errorf("it is not gone: %v", err)
	}
	return nil
}
