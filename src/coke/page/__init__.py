"""What people and machines see of agents that run: pages, figures to scrape, health."""
