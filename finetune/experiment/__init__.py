"""An experiment: several systems that are trained and evaluated alike on one task's data, over several seeds."""
