package main

import "github.com/fencekit/fencekit/internal/cli"

func main() { cli.Main(newRoot()) }
