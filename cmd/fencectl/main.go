package main

import "github.com/fencekit/fencekit/internal/cli"

func main() {
	beHelper()
	cli.Main(newRoot())
}
