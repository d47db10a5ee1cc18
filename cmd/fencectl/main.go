package main

import "github.com/fencekit/fencekit/internal/cli"

func main() {
	runHelper()
	cli.Main(newRoot())
}
