// placeholder until the floor has sources
